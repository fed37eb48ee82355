/** Live views of Kafka topics: follow, resume, keep a local copy. See docs/clients.md. */

/** A key: text or a number, or several columns as an array. */
export type Key = string | number | boolean | readonly (string | number | boolean | null)[];

export type Status = "connecting" | "live" | "waiting" | "failed" | "closed";

export type Change<Row = any, Event = any> =
  | { type: "row"; key: string; row: Row }
  | { type: "gone"; key: string }
  | { type: "event"; event: Event; position?: string }
  | { type: "ready" }
  | { type: "reset"; reason: string; message: string }
  | { type: "progress"; offset: number | null; target: number | null };

export interface Callbacks<Row = any, Event = any> {
  /** What a key holds now. */
  onrow?: ((row: Row, key: string) => void) | null;
  /** The key holds nothing any more, or does not match any more. */
  ongone?: ((key: string) => void) | null;
  /** The next event of a feed. */
  onevent?: ((event: Event, position?: string) => void) | null;
  /** Everything up to here has been told. */
  onready?: (() => void) | null;
  /** What is held can't be gone on with; it stays until everything has come anew. */
  onreset?: ((reason: string, message: string) => void) | null;
  /** The answer has to wait for a restore, which has come so far. */
  onprogress?: ((offset: number | null, target: number | null) => void) | null;
  onstatus?: ((status: Status, detail?: unknown) => void) | null;
}

export interface FollowOptions<Row = any> extends Callbacks<Row> {
  /** These keys; not together with `where`. */
  keys?: Iterable<Key>;
  /** The rows that match a query: the text after SQL's WHERE. */
  where?: string;
}

export interface FeedOptions<Event = any> extends Callbacks<never, Event> {
  /** The position of the last event that was seen, to go on after it. */
  position?: string;
}

/** In ms. */
export interface Timing {
  /** Without a word for so long, the gateway is asked whether it is there. */
  quiet?: number;
  /** How long it has to answer. */
  patience?: number;
  /** After so long without a word, a stream of Server-Sent Events is given up. */
  silence?: number;
  /** How long a connection may take. */
  connect?: number;
  /** The longest first wait before another attempt. */
  first?: number;
  /** The longest wait of all. */
  longest?: number;
}

export interface Options {
  /** A JWT, asked for before each connection and before the last one expires. */
  token?: () => string | Promise<string>;
  /** A one-time ticket, asked for before each connection. */
  ticket?: () => string | Promise<string>;
  /** `auto`: a WebSocket, and Server-Sent Events where it does not get through. */
  transport?: "auto" | "socket" | "events";
  timing?: Timing;
  /** Whether Server-Sent Events are asked for with cookies; `same-origin` where not given. */
  credentials?: RequestCredentials;
  /** Reads the JSON of rows and events. JSON.parse loses digits of numbers above 2 ** 53. */
  parse?: (text: string) => any;
  /** Where there is none, as in Node 20 and 21; without any, Server-Sent Events are used. */
  WebSocket?: new (url: string | URL, protocols?: string | string[]) => WebSocket;
  fetch?: typeof globalThis.fetch;
  random?: () => number;
}

/** The gateway has refused, and would again. */
export class Refused extends Error {
  /** What the gateway said: `error`, `expected`, `got`, `remedy`, or `code` and `reason`. */
  readonly details: Record<string, unknown>;
}

export interface Subscription<Row = any, Event = any> extends Callbacks<Row, Event>, AsyncIterable<Change<Row, Event>> {}

export class Subscription<Row = any, Event = any> {
  private constructor();
  /** What is held now, by the text of the key; it changes as frames come. */
  readonly rows: ReadonlyMap<string, Row>;
  readonly status: Status;
  readonly ended: boolean;
  /** Why it has failed. */
  readonly error: Error | null;
  /** Resolves when everything up to now is held; rejects where the subscription ends before. */
  ready(): Promise<void>;
  /** Follow no longer. */
  close(): void;
}

export class Client {
  constructor(url: string | URL, options: Options);
  onstatus: ((status: "connecting" | "live" | "waiting" | "failed" | "closed", detail?: unknown) => void) | null;
  onerror: ((error: unknown) => void) | null;
  readonly status: "idle" | Status;
  /** Follow some keys of a view, the rows that match a query, or the whole view. */
  follow<Row = any>(view: string, options?: FollowOptions<Row>): Subscription<Row>;
  /** Follow a feed of a client. */
  feed<Event = any>(feed: string, client: Key, options?: FeedOptions<Event>): Subscription<never, Event>;
  /** Follow a stream that was opened with `POST /streams`. */
  stream<Row = any>(id: string, options?: Callbacks<Row>): Subscription<Row>;
  /** End every subscription and the connection. */
  close(): void;
}

/** A client of the gateway at `url`. It connects with the first subscription, and again until it is closed. */
export function connect(url?: string | URL, options?: Options): Client;
