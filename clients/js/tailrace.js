/**
 * tailrace.js: live views of Kafka topics, in browsers and in Node 20 and newer, without dependencies.
 *
 *     import { connect } from "https://gateway.example/tailrace.js";
 *
 *     const client = connect("https://gateway.example");
 *     const orders = client.follow("orders", { where: "status = 'open'" });
 *     for await (const change of orders) console.log(change, orders.rows);
 *
 * Logic without I/O is in copy.js (what is held, and where to resume), conversation.js (WebSocket messages), events.js
 * (Server-Sent Events) and again.js (when to try again); link.js and this file are thin shells around it. The
 * protocol is docs/protocol.md; tests/conformance/cases is what these files and the Python client both do.
 */

import { Conversation, eventsPath, isApart, keyText } from "./tailrace/conversation.js";
import { Route, afterClose, delay } from "./tailrace/again.js";
import { Link, stream } from "./tailrace/link.js";
import { Refused, Subscription, call } from "./tailrace/subscription.js";

export { Refused, Subscription };

const PROTOCOL = "tailrace.v1";

// In ms. `quiet`: without a word for so long, the gateway is asked whether it is there; `patience`: it has so long to
// answer. `silence`: the same for Server-Sent Events, which can't be asked. `connect`: how long a connection may take.
const TIMING = { quiet: 20_000, patience: 10_000, silence: 40_000, connect: 10_000, first: 500, longest: 30_000 };

/** A client of the gateway at `url`. It connects with the first subscription, and again until it is closed. */
export function connect(url = ".", options = {}) {
  return new Client(url, options);
}

export class Client {
  onstatus = null;
  onerror = null;
  status = "idle";
  #base;
  #options;
  #timing;
  #parse;
  #route;
  #subscriptions = new Set();
  #names = new Map(); // of subscriptions on the current socket
  #count = 0;
  #attempt = 0;
  #link = null;
  #conversation = null;
  #keeping = false;
  #sleeping = new Set();
  #renewal = null;
  #token;
  #refused;
  #closed = false;
  #failure = null;
  #online = () => this.#look();
  #visible = () => globalThis.document.visibilityState === "visible" && this.#look();

  constructor(url, options) {
    this.#base = new URL(url, globalThis.document?.baseURI);
    if (!this.#base.pathname.endsWith("/")) this.#base.pathname += "/";
    this.#options = { WebSocket: globalThis.WebSocket, fetch: globalThis.fetch, random: Math.random, ...options };
    this.#timing = { ...TIMING, ...options.timing };
    this.#parse = options.parse ?? JSON.parse;
    this.#route = new Route(options.transport ?? (this.#options.WebSocket ? "auto" : "events"));
    globalThis.addEventListener?.("online", this.#online);
    globalThis.document?.addEventListener("visibilitychange", this.#visible);
  }

  /** Follow some keys of a view (`keys`), the rows that match a query (`where`), or the whole view. */
  follow(view, { keys, where, ...options } = {}) {
    const target = { view };
    if (keys !== undefined) target.keys = [...new Set([...keys].map(keyText))];
    if (target.keys?.length === 0) throw new Refused("expected at least one key, got none: omit keys to get all rows");
    if (where !== undefined) target.where = where;
    return this.#add(target, options);
  }

  /** Follow a feed; `position` is the last one that was seen of it, where events are to be gone on with. */
  feed(feed, client, options = {}) {
    return this.#add({ feed, client: keyText(client) }, options);
  }

  /** Follow a stream that was opened with `POST /streams`. It has a connection of its own: Server-Sent Events. */
  stream(id, options = {}) {
    return this.#add({ stream: id }, options);
  }

  /** End every subscription and the connection. */
  close() {
    if (this.#closed) return;
    this.#closed = true;
    globalThis.removeEventListener?.("online", this.#online);
    globalThis.document?.removeEventListener("visibilitychange", this.#visible);
    for (const subscription of [...this.#subscriptions]) subscription.close();
    this.#link?.close();
    for (const awake of [...this.#sleeping]) awake();
    this.#say("closed");
  }

  #add(target, options) {
    const door = { leave: (one) => this.#leave(one), hold: (one) => this.#hold(one), release: (one) => this.#serve(one) };
    const subscription = new Subscription(target, options, door, this.#parse);
    subscription.apart = isApart(target, [...this.#subscriptions].map((one) => one.target));
    if (this.#closed) throw new Refused("the client is closed: connect again");
    this.#subscriptions.add(subscription);
    queueMicrotask(() => this.#serve(subscription));
    return subscription;
  }

  #serve(subscription) {
    if (this.#closed || subscription.ended) return;
    subscription.link.held = false;
    if (this.#failure) subscription.fail(this.#failure);
    else if (this.#overEvents(subscription)) this.#stream(subscription);
    else if (this.#link?.opened) this.#subscribe(subscription);
    else this.#keep();
  }

  #leave(subscription) {
    this.#subscriptions.delete(subscription);
    this.#hold(subscription);
  }

  /** Receive nothing for a subscription until it is served again, from where it was. */
  #hold(subscription) {
    const { link } = subscription;
    link.held = true;
    link.stop?.();
    if (this.#names.delete(link.id)) this.#link?.send(this.#conversation.unsubscribe(link.id));
  }

  // ── over one WebSocket ──

  /** Keep a socket open, until Server-Sent Events are to be tried. */
  async #keep() {
    if (this.#keeping) return;
    this.#keeping = true;
    while (!this.#closed && !this.#failure && this.#route.transport === "socket") {
      this.#say("connecting");
      const { code, reason, opened, error } = await this.#socket();
      if (this.#closed) break;
      let verdict = opened ? afterClose(code) : "again";
      if (!opened && !error && this.#route.failed()) break;
      if (verdict === "token") verdict = this.#another();
      if (verdict === "stop") this.#fail(new Refused(reason || `the gateway has closed the connection: ${code}`, { code, reason }));
      else await this.#pause(verdict, { code, reason, error });
    }
    this.#keeping = false;
    if (!this.#closed && !this.#failure) for (const one of this.#subscriptions) this.#stream(one);
  }

  /** One socket, until it ends. */
  async #socket() {
    let address;
    try {
      address = await this.#address("ws");
      address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
      this.#token = await this.#options.token?.();
      if (this.#closed || this.#stale()) return { code: 4401, reason: "unauthorized", opened: true };
    } catch (error) {
      return { opened: false, error };
    }
    const ended = await new Promise((resolve) => {
      let socket;
      try {
        socket = new this.#options.WebSocket(address, [PROTOCOL]);
      } catch (error) {
        resolve({ opened: false, reason: String(error) }); // a page that may not use it
        return;
      }
      const link = new Link(socket, this.#timing, {
        open: () => this.#opened(),
        message: (text) => this.#receive(text),
        end: (code, reason) => resolve({ code, reason, opened: link.opened }),
      });
      this.#link = link;
      this.#conversation = new Conversation();
      this.#names.clear();
    });
    this.#link = null;
    clearTimeout(this.#renewal);
    return ended;
  }

  #opened() {
    this.#route.opened();
    this.#say("live");
    if (this.#token !== undefined) this.#link.send({ type: "auth", token: this.#token });
    for (const one of this.#subscriptions) if (!one.link.held && !one.apart) this.#subscribe(one);
  }

  #subscribe(subscription) {
    const { link } = subscription;
    link.stop?.();
    link.id = `s${(this.#count += 1)}`;
    this.#names.set(link.id, subscription);
    subscription.say("connecting");
    this.#link.send(this.#conversation.subscribe(link.id, subscription.target, subscription.begin("socket")));
  }

  #receive(text) {
    let message;
    try {
      message = this.#parse(text);
    } catch (error) {
      call(this.onerror, error);
      return;
    }
    for (const [id, frame] of this.#conversation.receive(message)) {
      const subscription = this.#names.get(id);
      if (id === null) this.#about(frame);
      else if (frame.type === "error") this.#refuse(subscription, frame);
      else {
        if (frame.type === "ready") this.#attempt = 0;
        subscription?.take(frame);
      }
    }
  }

  #about(frame) {
    if (frame.type === "authenticated") {
      this.#refused = undefined;
      const left = frame.expires - Date.now();
      clearTimeout(this.#renewal);
      if (this.#options.token && left > 0) this.#renewal = setTimeout(() => this.#renew(), Math.min(left * 0.8, 2 ** 31 - 1));
    } else if (frame.type === "error") call(this.onerror, new Refused(frame.error, frame));
  }

  async #renew() {
    try {
      this.#token = await this.#options.token();
      this.#link?.send({ type: "auth", token: this.#token });
    } catch (error) {
      // The gateway ends the connection when the token has expired; by then there may be another.
      call(this.onerror, error);
    }
  }

  async #refuse(subscription, frame) {
    if (!subscription) return;
    this.#names.delete(subscription.link.id);
    if (!frame.retry) {
      this.#subscriptions.delete(subscription);
      subscription.fail(new Refused(`${frame.error}: ${frame.remedy ?? ""}`, frame));
      return;
    }
    const { link } = subscription;
    const before = link.id;
    subscription.say("waiting", frame);
    await this.#sleep(delay((link.attempt += 1), this.#options.random(), this.#timing));
    if (link.id === before && !link.held && this.#link?.opened) this.#subscribe(subscription);
  }

  // ── over Server-Sent Events, a stream each ──

  async #stream(subscription) {
    const { link } = subscription;
    if (link.streaming) return;
    link.streaming = true;
    while (!this.#closed && !link.held && !subscription.ended && this.#overEvents(subscription)) {
      subscription.say("connecting");
      let end;
      try {
        end = await this.#once(subscription);
      } catch (error) {
        end = { verdict: "again", opened: true, details: { error: String(error?.message ?? error) } }; // no token
      }
      if (this.#closed || link.held || subscription.ended) break;
      let verdict = end.verdict ?? "again";
      if (verdict === "again" && !end.opened && this.#route.transport === "events") this.#route.failed();
      if (verdict === "token") verdict = this.#another();
      if (verdict === "stop") {
        this.#subscriptions.delete(subscription);
        subscription.fail(new Refused(end.details?.message ?? end.details?.error ?? "refused", end.details));
        break;
      }
      subscription.say("waiting", end.details);
      const wait = verdict === "soon" ? this.#options.random() * 2000 : this.#delay(link.attempt, end.retryAfter);
      link.attempt += 1;
      await this.#sleep(wait);
    }
    link.streaming = false;
    if (!this.#closed && !link.held && !subscription.ended) this.#serve(subscription);
  }

  async #once(subscription) {
    const { position } = subscription.begin("events");
    const url = await this.#address(eventsPath(subscription.target, position));
    const headers = { Accept: "text/event-stream" };
    if (this.#options.token) {
      this.#token = await this.#options.token();
      if (this.#stale()) return { verdict: "token", opened: true };
      headers.Authorization = `Bearer ${this.#token}`;
    }
    // While the token was waited for, the subscription may have ended, or gone to a socket.
    const left = this.#closed || subscription.ended || subscription.link.held || !this.#overEvents(subscription);
    if (left) return { verdict: "again", opened: true };
    const options = { headers, credentials: this.#options.credentials ?? "same-origin" };
    return stream(this.#options.fetch, url, options, this.#timing, subscription, () => {
      if (this.#route.transport === "events") this.#route.opened();
      this.#refused = undefined;
      this.#say("live");
    });
  }

  #overEvents(subscription) {
    return this.#route.transport === "events" || subscription.apart;
  }

  // ── both ──

  async #address(path) {
    const address = new URL(path, this.#base);
    if (this.#options.ticket) address.searchParams.set("ticket", await this.#options.ticket());
    return address;
  }

  /** Whether the token is the one that was refused. */
  #stale() {
    return this.#refused !== undefined && this.#token === this.#refused;
  }

  /** The token was refused: whether another may be had. */
  #another() {
    if (this.#stale() || !(this.#options.token || this.#options.ticket)) return "stop";
    this.#refused = this.#token;
    return "again";
  }

  #delay(attempt, retryAfter = 0) {
    return delay(attempt, this.#options.random(), { ...this.#timing, retryAfter });
  }

  async #pause(verdict, detail) {
    this.#say("waiting", detail);
    for (const one of this.#subscriptions) if (!one.apart) one.say("waiting", detail);
    const wait = verdict === "soon" ? this.#options.random() * 2000 : this.#delay(this.#attempt);
    this.#attempt += 1;
    await this.#sleep(wait);
  }

  #sleep(ms) {
    return new Promise((resolve) => {
      const awake = () => {
        clearTimeout(timer);
        this.#sleeping.delete(awake);
        resolve();
      };
      const timer = setTimeout(awake, ms);
      this.#sleeping.add(awake);
    });
  }

  /** The network is back, or the page is looked at again: try now what was waited for, and see what is dead. */
  #look() {
    for (const awake of [...this.#sleeping]) awake();
    this.#link?.probe();
    for (const one of this.#subscriptions) one.link.probe?.();
  }

  #fail(error) {
    this.#failure = error;
    for (const one of [...this.#subscriptions]) one.fail(error);
    this.#subscriptions.clear();
    this.#say("failed", error);
  }

  #say(status, detail) {
    if (this.status === status && status !== "waiting") return;
    this.status = status;
    call(this.onstatus, status, detail);
  }
}
