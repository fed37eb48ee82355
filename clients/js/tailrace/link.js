/** One connection each: a WebSocket, or a stream of Server-Sent Events. */

import { EventParser } from "./events.js";
import { afterReason, afterStatus } from "./again.js";

/** A WebSocket that is found dead within `quiet` + `patience` ms, whatever the network does. */
export class Link {
  opened = false;
  #socket;
  #timing;
  #told;
  #timer;
  #heard = Date.now();
  #asked = null;

  /** `told` has `open()`, `message(text)` and `end(code, reason)`, which comes once and last. */
  constructor(socket, timing, told) {
    this.#socket = socket;
    this.#timing = timing;
    this.#told = told;
    socket.onopen = () => {
      this.opened = true;
      this.#heard = Date.now();
      told.open();
    };
    socket.onmessage = ({ data }) => {
      this.#heard = Date.now();
      this.#asked = null;
      if (typeof data === "string") told.message(data);
    };
    socket.onclose = ({ code, reason }) => this.#end(code, reason);
    socket.onerror = () => {}; // `close` follows
    this.#timer = setInterval(() => this.#look(), Math.min(timing.quiet, timing.patience) / 4);
  }

  send(message) {
    if (this.opened && this.#told) this.#socket.send(JSON.stringify(message));
  }

  /** See now whether the gateway is still there: the network has changed, or the page was asleep. */
  probe() {
    if (this.opened && this.#asked === null) {
      this.#asked = Date.now();
      this.send({ type: "ping" });
    }
  }

  close() {
    this.#end(1000, "");
  }

  #look() {
    const now = Date.now();
    if (!this.opened) {
      if (now - this.#heard > this.#timing.connect) this.#end(1006, "no answer");
    } else if (this.#asked !== null) {
      if (now - this.#asked > this.#timing.patience) this.#end(1006, "silent");
    } else if (now - this.#heard > this.#timing.quiet) this.probe();
  }

  #end(code, reason) {
    const told = this.#told;
    if (!told) return;
    this.#told = null;
    clearInterval(this.#timer);
    // A socket whose network is gone would tell of its end only minutes later.
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    try {
      socket.close();
    } catch {
      // it was never open
    }
    told.end(code, reason);
  }
}

/**
 * Follow one stream until it ends. Returns how: `{verdict, opened, retryAfter, details}`; `verdict` is null where the
 * connection broke or never came about.
 */
export async function stream(fetch, url, options, timing, subscription, told) {
  const stop = new AbortController();
  let heard = Date.now();
  let opened = false;
  const watch = setInterval(() => {
    if (Date.now() - heard > (opened ? timing.silence : timing.connect)) stop.abort();
  }, Math.min(timing.silence, timing.connect) / 4);
  subscription.link.stop = () => stop.abort();
  subscription.link.probe = () => {
    if (opened && Date.now() - heard > timing.quiet) stop.abort();
  };
  try {
    const response = await fetch(url, { ...options, cache: "no-store", signal: stop.signal });
    heard = Date.now();
    const type = response.headers.get("Content-Type") ?? "";
    if (response.status !== 200 || !type.startsWith("text/event-stream")) return await refusal(response);
    opened = true;
    told();
    const parser = new EventParser();
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { verdict: null, opened };
      heard = Date.now();
      for (const event of parser.feed(decoder.decode(value, { stream: true }))) {
        for (const frame of subscription.frames.take(event)) {
          if (frame.type === "close") return { verdict: afterReason(frame.reason, frame.retry), opened, details: frame };
          subscription.take(frame);
        }
      }
    }
  } catch (error) {
    return { verdict: null, opened, details: { error: String(error?.message ?? error) } };
  } finally {
    clearInterval(watch);
    stop.abort();
    subscription.link.stop = subscription.link.probe = null;
  }
}

async function refusal(response) {
  const text = await response.text();
  let details;
  try {
    details = JSON.parse(text);
  } catch {
    details = { error: text.slice(0, 200) };
  }
  const wait = response.headers.get("Retry-After");
  const seconds = /^\d+$/.test(wait ?? "") ? +wait : (Date.parse(wait ?? "") - Date.now()) / 1000;
  const verdict = response.status === 200 ? "again" : afterStatus(response.status);
  return { verdict, opened: false, retryAfter: seconds > 0 ? seconds : 0, details: { status: response.status, ...details } };
}
