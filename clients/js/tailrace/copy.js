/** What a subscription holds, how far it has come, and what waits for whoever iterates. No I/O. */

const POSITION = /^([0-9a-f]{8}\.[0-9]{1,9})((?:\.[0-9]{1,6}-[0-9]{1,19})*)$/;

/** How far a subscription has come: positions merged into one, per partition the higher offset. */
export class Reached {
  #text = null;
  #build = null; // lineage and generation of the offsets
  #offsets = new Map();

  /** Take a frame's position in; of another build it replaces what was there, and none at all changes nothing. */
  merge(text) {
    if (!text) return;
    const found = POSITION.exec(text);
    if (!found || this.#build === null || found[1] !== this.#build) {
      this.set(text);
      return;
    }
    for (const pair of found[2].split(".").slice(1)) {
      const [partition, offset] = pair.split("-");
      const known = this.#offsets.get(+partition);
      // Offsets may have more digits than a number holds.
      if (known === undefined || offset.length > known.length || (offset.length === known.length && offset > known))
        this.#offsets.set(+partition, offset);
    }
    this.#text = null;
  }

  /** Whether what is at this position has been reached already. */
  covers(text) {
    const found = text && POSITION.exec(text);
    if (!found || found[1] !== this.#build || !found[2]) return false;
    const before = this.text;
    const reached = new Reached();
    reached.set(before);
    reached.merge(text);
    return reached.text === before;
  }

  /** Be at this position, or at none. */
  set(text) {
    const found = text ? POSITION.exec(text) : null;
    this.#text = text || null;
    this.#build = found ? found[1] : null;
    this.#offsets = new Map(found ? found[2].split(".").slice(1).map((pair) => [+pair.split("-")[0], pair.split("-")[1]]) : []);
  }

  /** The position as text, or null. */
  get text() {
    if (this.#text === null && this.#build !== null) {
      const pairs = [...this.#offsets].sort(([one], [other]) => one - other);
      this.#text = this.#build + pairs.map(([partition, offset]) => `.${partition}-${offset}`).join("");
    }
    return this.#text;
  }
}

/**
 * What one subscription holds, and where it would resume.
 *
 * `take` returns what has changed for whoever looks at `rows`. A snapshot is kept apart until its `ready`, and then
 * only the differences are changes: who shows rows never shows half a view, and nothing flickers after a `reset`.
 */
export class Copy {
  rows = new Map();
  ready = false;
  #kind;
  #single = false; // one position for everything, as Server-Sent Events have it
  #snapshot = null; // what has come of a snapshot that is not complete
  #positions = new Map(); // of keys, on a WebSocket
  #reached = new Reached();
  #astray = false; // whether a feed has been told that its position can't be used

  /** `position` is for a feed, whose events are not held: the one to go on from. */
  constructor(kind, position) {
    this.#kind = kind;
    this.#reached.set(position);
  }

  /** A connection begins, over `socket` or `events`. Returns what it resumes from; without any, a snapshot comes. */
  begin(transport) {
    this.#single = transport === "events";
    this.ready = this.#astray = false;
    this.#snapshot = null;
    const resume = this.#resume();
    if (this.#kind !== "feed" && !resume) this.#snapshot = this.#empty();
    return resume ?? {};
  }

  /** Take a frame in; returns the changes. */
  take(frame) {
    switch (frame.type) {
      case "row":
        return this.#row(frame);
      case "gone":
        return this.#gone(frame);
      case "event":
        // Another subscription to the feed may have it sent once more.
        if (!this.#astray && this.#reached.covers(frame.position)) return [];
        this.#astray = false;
        this.#reached.set(frame.position);
        return [{ type: "event", event: frame.event, position: frame.position }];
      case "ready":
        return this.#complete(frame);
      case "reset":
        this.ready = false;
        this.#positions = new Map();
        // A feed without a position begins with what is yet to come, with a wrong one with what is kept.
        if (this.#kind === "feed") this.#astray = true;
        else {
          this.#reached.set(null);
          this.#snapshot = this.#empty();
        }
        return [{ type: "reset", reason: frame.reason, message: frame.message }];
      case "progress":
        return [{ type: "progress", offset: frame.offset, target: frame.target }];
      default:
        return [];
    }
  }

  #empty() {
    return { rows: new Map(), positions: new Map(), position: null };
  }

  #resume() {
    if (this.#kind !== "keys") return this.#reached.text && { position: this.#reached.text };
    if (this.#single) {
      // Positions of single keys can't be told as one: what one key has seen, another may have missed.
      if (this.#positions.size) this.#reached.set(null);
      this.#positions = new Map();
      return this.#reached.text && { position: this.#reached.text };
    }
    const all = this.#reached.text;
    if (all) this.#positions = new Map([...this.rows.keys()].map((key) => [key, all]));
    this.#reached.set(null);
    // A key that is held without a position would not be told that it has gone.
    if (!this.rows.size || [...this.rows.keys()].some((key) => !this.#positions.has(key))) return null;
    return { positions: Object.fromEntries(this.#positions) };
  }

  #row({ key, row, position }) {
    const held = this.#snapshot ?? this;
    held.rows.set(key, row);
    this.#note(key, position, true);
    return this.#snapshot ? [] : [{ type: "row", key, row }];
  }

  #gone({ key, position }) {
    const had = (this.#snapshot ?? this).rows.delete(key);
    this.#note(key, position, false);
    return had && !this.#snapshot ? [{ type: "gone", key }] : [];
  }

  #note(key, position, holds) {
    const snapshot = this.#snapshot;
    if (this.#single) {
      if (!position) return;
      if (snapshot) snapshot.position = position;
      else this.#reached.set(position);
    } else if (this.#kind === "keys") {
      const positions = snapshot ? snapshot.positions : this.#positions;
      // A key that holds nothing has nothing to resume: it would be asked for as if for the first time.
      if (!holds) positions.delete(key);
      else if (position) positions.set(key, position);
    } else if (this.ready) {
      // Before `ready` the offsets of rows say nothing of the rows between them.
      this.#reached.merge(position);
    }
  }

  #complete({ position }) {
    const snapshot = this.#snapshot;
    const changes = [];
    if (snapshot) {
      for (const key of this.rows.keys()) if (!snapshot.rows.has(key)) changes.push({ type: "gone", key });
      for (const [key, row] of snapshot.rows)
        if (!this.rows.has(key) || !same(this.rows.get(key), row)) changes.push({ type: "row", key, row });
      // The map stays the same one: who holds it sees the new rows.
      this.rows.clear();
      for (const [key, row] of snapshot.rows) this.rows.set(key, row);
      this.#positions = snapshot.positions;
      this.#reached.set(snapshot.position);
      this.#snapshot = null;
    }
    if (position && (this.#single || this.#kind !== "keys")) this.#reached.set(position);
    this.ready = true;
    this.#astray = false;
    return [...changes, { type: "ready" }];
  }
}

function same(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  const names = Object.keys(one);
  return (
    Array.isArray(one) === Array.isArray(other) &&
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]))
  );
}

/** Changes that wait for whoever iterates: of each key the newest, of a feed every event. */
export class Changes {
  #waiting = new Map();
  #count = 0;

  get size() {
    return this.#waiting.size;
  }

  push(change) {
    const { type } = change;
    if (type === "event") this.#waiting.set(`event ${(this.#count += 1)}`, change);
    else if (type === "row" || type === "gone") this.#waiting.set(`key ${change.key}`, change);
    else {
      this.#waiting.delete(type);
      this.#waiting.set(type, change);
    }
  }

  shift() {
    for (const [slot, change] of this.#waiting) {
      this.#waiting.delete(slot);
      return change;
    }
    return undefined;
  }
}
