/** What a page or a program holds of one thing that it follows. */

import { Changes, Copy } from "./copy.js";
import { kindOf } from "./conversation.js";
import { EventFrames } from "./events.js";

// How many events of a feed may wait for whoever iterates; then the gateway is asked for no more.
const WAITING = 1000;

/** The gateway has refused, and would again. `details` has what it said. */
export class Refused extends Error {
  constructor(message, details = {}) {
    super(message);
    this.name = "Refused";
    this.details = details;
  }
}

/**
 * Rows by key, callbacks (`onrow`, `ongone`, `onevent`, `onready`, `onreset`, `onprogress`, `onstatus`) and changes to
 * iterate over. `status` is `connecting`, `live`, `waiting`, `failed` or `closed`.
 */
export class Subscription {
  onrow = null;
  ongone = null;
  onevent = null;
  onready = null;
  onreset = null;
  onprogress = null;
  onstatus = null;
  status = "connecting";
  error = null;
  /** For the client alone: whether it has a connection of its own. */
  apart = false;
  /** For the client alone: the name on the current socket, attempts since the last `ready`, what ends the stream. */
  link = { id: null, attempt: 0, held: false, streaming: false, stop: null, probe: null };
  #copy;
  #client;
  #readers = new Set();
  #events = null;
  #waiting = new Set();

  constructor(target, { position, ...callbacks }, client, parse) {
    this.target = target;
    this.frames = new EventFrames(target, parse);
    this.#copy = new Copy(kindOf(target), position);
    this.#client = client;
    if (kindOf(target) === "feed") this.#events = new Changes();
    for (const [name, callback] of Object.entries(callbacks)) if (name.startsWith("on")) this[name] = callback;
  }

  /** What is held now, by the text of the key. It changes as frames come; do not write to it. */
  get rows() {
    return this.#copy.rows;
  }

  get ended() {
    return this.status === "closed" || this.status === "failed";
  }

  /** Resolves when everything up to now is held; rejects where the subscription ends before. */
  async ready() {
    while (!this.#copy.ready) {
      if (this.ended) throw this.error ?? new Refused("the subscription was closed before it was ready");
      await new Promise((resolve) => this.#waiting.add(resolve));
    }
  }

  /** Follow no longer. */
  close() {
    if (this.ended) return;
    this.say("closed");
    this.#client.leave(this);
  }

  /** What is held now, then every change; of each key the newest, where the reader is slow. Of a feed, its events. */
  async *[Symbol.asyncIterator]() {
    const reader = { changes: this.#events ?? new Changes(), wake: null };
    if (reader.changes !== this.#events) {
      for (const [key, row] of this.rows) reader.changes.push({ type: "row", key, row });
      if (this.#copy.ready) reader.changes.push({ type: "ready" });
    }
    this.#readers.add(reader);
    try {
      for (;;) {
        const change = reader.changes.shift();
        if (change !== undefined) {
          if (this.link.held && reader.changes.size <= WAITING / 2) this.#client.release(this);
          yield change;
        } else if (this.status === "failed") throw this.error;
        else if (this.status === "closed") return;
        else await new Promise((resolve) => (reader.wake = resolve));
      }
    } finally {
      this.#readers.delete(reader);
    }
  }

  /** For the client: a connection begins. */
  begin(transport) {
    this.frames.begin();
    return this.#copy.begin(transport);
  }

  /** For the client: a frame has come. */
  take(frame) {
    if (this.ended) return;
    for (const change of this.#copy.take(frame)) this.#tell(change);
  }

  /** For the client: the gateway has refused for good. */
  fail(error) {
    if (this.ended) return;
    this.error = error;
    this.say("failed", error);
  }

  /** For the client: how the connection is. */
  say(status, detail) {
    if (this.ended || (this.status === status && status === "live")) return;
    this.status = status;
    call(this.onstatus, status, detail);
    for (const reader of this.#readers) reader.wake?.();
    this.#wake();
  }

  #tell(change) {
    if (change.type === "ready") {
      this.link.attempt = 0;
      this.say("live");
      this.#wake();
    }
    if (this.#events) {
      // Where a callback takes the events and nobody iterates, none wait.
      if (this.#readers.size || !this.onevent) this.#events.push(change);
      else this.#events = new Changes();
    }
    for (const reader of this.#readers) {
      if (reader.changes !== this.#events) reader.changes.push(change);
      reader.wake?.();
    }
    if (this.#events && this.#events.size >= WAITING && !this.link.held) this.#client.hold(this);
    if (change.type === "row") call(this.onrow, change.row, change.key);
    else if (change.type === "gone") call(this.ongone, change.key);
    else if (change.type === "event") call(this.onevent, change.event, change.position);
    else if (change.type === "reset") call(this.onreset, change.reason, change.message);
    else if (change.type === "progress") call(this.onprogress, change.offset, change.target);
    else call(this.onready);
  }

  #wake() {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

/** A callback that fails is the page's affair, and must not end the connection. */
export function call(callback, ...values) {
  try {
    callback?.(...values);
  } catch (error) {
    setTimeout(() => {
      throw error;
    });
  }
}
