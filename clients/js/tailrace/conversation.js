/** What is followed, and what is said about it on a WebSocket. No I/O. */

/** The key of a row as text: numbers and text as they are, several columns as a JSON array. */
export function keyText(key) {
  if (Array.isArray(key)) return JSON.stringify(key);
  return String(key);
}

/**
 * Whether a target needs a connection of its own beside `others`: the frames of a stream name keys that only the gateway
 * knows, and those of a feed can't be told apart from another subscription to it.
 */
export function isApart(target, others) {
  if (target.stream !== undefined) return true;
  return others.some(({ feed, client }) => feed !== undefined && feed === target.feed && client === target.client);
}

/** What a target is merged by: `keys`, `query` (also a whole view and a stream) or `feed`. */
export function kindOf(target) {
  if (target.feed !== undefined) return "feed";
  return target.keys !== undefined ? "keys" : "query";
}

/** The path that a target is followed at over Server-Sent Events, below the gateway's address. */
export function eventsPath(target, position) {
  const encoded = encodeURIComponent;
  const parameters = [];
  let path;
  if (target.feed !== undefined) path = `feeds/${encoded(target.feed)}/${encoded(target.client)}/events`;
  else if (target.stream !== undefined) path = `streams/${encoded(target.stream)}/events`;
  else {
    const [first, ...more] = target.keys ?? [];
    // URLs take `.` and `..` out of paths, also when they are encoded, and proxies join two slashes.
    const segment = target.keys && more.length === 0 && !["", ".", ".."].includes(first);
    path = segment ? `views/${encoded(target.view)}/${encoded(first)}/events` : `views/${encoded(target.view)}/events`;
    if (target.keys && !segment) parameters.push(...target.keys.map((key) => `key=${encoded(key)}`));
    if (target.where !== undefined) parameters.push(`where=${encoded(target.where)}`);
  }
  if (position) parameters.push(`last_event_id=${encoded(position)}`);
  return parameters.length ? `${path}?${parameters.join("&")}` : path;
}

/** What is said on one WebSocket: which subscriptions a message is for. */
export class Conversation {
  #targets = new Map();
  #routes = new Map();
  #routesOf = new Map();

  /** The message that subscribes. */
  subscribe(id, target, resume) {
    this.#targets.set(id, target);
    if (target.feed !== undefined) this.#route(id, `feed\0${target.feed}\0${target.client}`);
    for (const key of target.keys ?? []) this.#route(id, `key\0${target.view}\0${key}`);
    return { type: "subscribe", id, ...target, ...resume };
  }

  /** The message that ends a subscription; nothing is for it from now on. */
  unsubscribe(id) {
    this.#forget(id);
    return { type: "unsubscribe", id };
  }

  /** The [id, frame] pairs that a message means; the id is null for what is about the connection. */
  receive(message) {
    const { type, id } = message ?? {};
    if (type === "row" || type === "gone")
      return this.#for(message.query === undefined ? `key\0${message.view}\0${message.key}` : `query\0${message.view}\0${message.query}`, message);
    if (type === "event") return this.#for(`feed\0${message.feed}\0${message.client}`, message);
    if (id === undefined) return [[null, message]];
    const target = this.#targets.get(id);
    if (target === undefined) return [];
    if (type === "subscribed") {
      // Once more where another token shows other rows: then it is another query, or none.
      for (const route of [...(this.#routesOf.get(id) ?? [])]) if (route.startsWith("query\0")) this.#leave(id, route);
      if (message.query !== undefined) this.#route(id, `query\0${target.view}\0${message.query}`);
    }
    if (type === "error" || type === "unsubscribed") this.#forget(id);
    return [[id, message]];
  }

  #for(route, message) {
    return [...(this.#routes.get(route) ?? [])].map((id) => [id, message]);
  }

  #route(id, route) {
    if (!this.#routes.has(route)) this.#routes.set(route, new Set());
    if (!this.#routesOf.has(id)) this.#routesOf.set(id, new Set());
    this.#routes.get(route).add(id);
    this.#routesOf.get(id).add(route);
  }

  #leave(id, route) {
    this.#routesOf.get(id).delete(route);
    this.#routes.get(route).delete(id);
    if (!this.#routes.get(route).size) this.#routes.delete(route);
  }

  #forget(id) {
    for (const route of [...(this.#routesOf.get(id) ?? [])]) this.#leave(id, route);
    this.#routesOf.delete(id);
    this.#targets.delete(id);
  }
}
