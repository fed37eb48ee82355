/** When to try again, and over which transport. No I/O. */

/** How long to wait before an attempt, in ms: full jitter, so that clients do not come all at once. */
export function delay(attempt, random, { first = 500, longest = 30_000, retryAfter = 0 } = {}) {
  return retryAfter * 1000 + random * Math.min(longest, first * 2 ** Math.min(attempt, 30));
}

/**
 * What the end of a WebSocket asks for: `soon` (the gateway shuts down, others are there), `again` (with backoff),
 * `token` (with another one), `stop`.
 */
export function afterClose(code) {
  if (code === 1001) return "soon";
  if (code === 4401) return "token";
  return [1009, 4400, 4403].includes(code) ? "stop" : "again";
}

/** The same for the `close` frame of Server-Sent Events. */
export function afterReason(reason, retry) {
  if (reason === "shutdown") return "soon";
  if (reason === "unauthorized") return "token";
  return reason === "forbidden" || reason === "gone" || retry === false ? "stop" : "again";
}

/** The same for the HTTP status of a stream that was refused. */
export function afterStatus(status) {
  if (status === 401) return "token";
  if (status === 204) return "stop";
  return status >= 400 && status < 500 && ![408, 425, 429].includes(status) ? "stop" : "again";
}

/** Which transport to take next: WebSocket, or Server-Sent Events where it does not get through. */
export class Route {
  transport;
  #fixed;
  #failures = 0;
  #worked = { socket: false, events: false };

  constructor(transport = "auto") {
    this.#fixed = transport !== "auto";
    this.transport = this.#fixed ? transport : "socket";
  }

  /** The transport gets through. */
  opened() {
    this.#failures = 0;
    this.#worked[this.transport] = true;
  }

  /** It does not. True where the other one is to be tried at once; one that has worked gets three attempts. */
  failed() {
    this.#failures += 1;
    if (this.#fixed || this.#failures < (this.#worked[this.transport] ? 3 : 1)) return false;
    this.#failures = 0;
    this.transport = this.transport === "socket" ? "events" : "socket";
    return this.transport === "events";
  }
}
