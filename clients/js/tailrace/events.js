/** Server-Sent Events: from text to events, from events to frames. No I/O. */

/** Makes events of the text of a stream, in whatever pieces it comes. */
export class EventParser {
  #rest = "";
  #event = {};

  /** The events that a piece of text completes: `{event, data, id?}`. */
  feed(text) {
    const found = [];
    this.#rest += text;
    let line;
    while ((line = /^([^\r\n]*)(\r\n|\n|\r(?=.|\n))/s.exec(this.#rest)) !== null) {
      this.#rest = this.#rest.slice(line[0].length);
      this.#line(line[1], found);
    }
    return found;
  }

  #line(line, found) {
    if (line === "") {
      if (this.#event.data !== undefined) found.push({ event: "message", ...this.#event });
      this.#event = {};
      return;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name === "data") this.#event.data = this.#event.data === undefined ? value : `${this.#event.data}\n${value}`;
    else if (name === "event") this.#event.event = value;
    else if (name === "id" && !value.includes("\0")) this.#event.id = value;
  }
}

const TOKEN = /\s*(?:"((?:[^"\\]|\\.)*)"|(-?[0-9][^\s,}\]]*|true|false|null)|([{}[\]:,]))/sy;

/** The text of the key of a row's JSON, by the names of the key columns. Large numbers keep their digits. */
export function keyOf(json, columns) {
  const values = new Map();
  let depth = 0;
  let name = null;
  TOKEN.lastIndex = 0;
  for (let token; (token = TOKEN.exec(json)) !== null; ) {
    const [, string, literal, mark] = token;
    if (mark === "{" || mark === "[") depth += 1;
    else if (mark === "}" || mark === "]") depth -= 1;
    else if (depth === 1 && mark === ",") name = null;
    else if (depth === 1 && mark === undefined) {
      if (name === null) name = JSON.parse(`"${string}"`);
      else values.set(name, string === undefined ? literal : `"${string}"`);
    }
  }
  const texts = columns.map((column) => values.get(column) ?? "null");
  if (texts.length > 1) return `[${texts.join(",")}]`;
  return texts[0].startsWith('"') ? JSON.parse(texts[0]) : texts[0];
}

/** Makes frames of events: rows get the key that a WebSocket would name. */
export class EventFrames {
  #key;
  #columns = null;
  #waiting = []; // rows before the `ready` that says which columns are the key
  #parse;

  constructor(target, parse = JSON.parse) {
    this.#key = target.keys?.length === 1 ? target.keys[0] : undefined;
    this.#parse = parse;
  }

  /** A connection begins: what waits has not been seen. */
  begin() {
    this.#waiting = [];
  }

  /** The frames that an event means. */
  take({ event, data, id }) {
    const frame = { type: event, ...(id ? { position: id } : {}) };
    if (event === "row" || event === "gone") {
      if (this.#key === undefined && this.#columns === null) {
        this.#waiting.push([frame, data]);
        return [];
      }
      return [this.#keyed(frame, data)];
    }
    if (event === "event") return [{ ...frame, event: this.#parse(data) }];
    const fields = JSON.parse(data);
    if (event === "reset") this.begin();
    if (event === "reset") this.#columns = null;
    if (event !== "ready") return [{ ...fields, ...frame }];
    this.#columns = fields.key ?? this.#columns;
    const before = this.#waiting.map(([waiting, text]) => this.#keyed(waiting, text));
    this.#waiting = [];
    return [...before, frame];
  }

  #keyed(frame, data) {
    const key = this.#key ?? keyOf(data, this.#columns);
    return frame.type === "row" ? { ...frame, key, row: this.#parse(data) } : { ...frame, key };
  }
}
