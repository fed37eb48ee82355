// Runs cases on the logic of tailrace.js: a case per line comes in, its outcome goes out.

import { createInterface } from "node:readline";
import { Changes, Copy, Reached } from "../../clients/js/tailrace/copy.js";
import { Conversation, eventsPath, isApart, keyText } from "../../clients/js/tailrace/conversation.js";
import { EventFrames, EventParser, keyOf } from "../../clients/js/tailrace/events.js";
import { Route, afterClose, afterReason, afterStatus, delay } from "../../clients/js/tailrace/again.js";

const machines = {
  reached({ steps }) {
    const reached = new Reached();
    return steps.map(([verb, text]) => (reached[verb](text), reached.text));
  },
  copy({ kind, position, steps }) {
    const copy = new Copy(kind, position);
    const told = steps.map(([verb, value]) => copy[verb](value));
    return { told, rows: Object.fromEntries(copy.rows), ready: copy.ready };
  },
  conversation({ steps }) {
    const conversation = new Conversation();
    return steps.map(([verb, ...values]) => conversation[verb](...values));
  },
  parser({ pieces }) {
    const parser = new EventParser();
    return pieces.flatMap((piece) => parser.feed(piece));
  },
  frames({ target, steps }) {
    const frames = new EventFrames(target);
    return steps.map(([verb, value]) => frames[verb](value) ?? null);
  },
  changes({ steps }) {
    const changes = new Changes();
    return steps.map(([verb, value]) => changes[verb](value) ?? null);
  },
  route({ transport, steps }) {
    const route = new Route(transport);
    return steps.map((verb) => [route[verb]() ?? null, route.transport]);
  },
  key_of: ({ row, columns }) => keyOf(row, columns),
  key_text: ({ key }) => keyText(key),
  apart: ({ target, others }) => isApart(target, others),
  path: ({ target, position }) => eventsPath(target, position),
  delay: ({ attempt, random, retry_after }) => delay(attempt, random, { retryAfter: retry_after }),
  close: ({ code }) => afterClose(code),
  reason: ({ reason, retry }) => afterReason(reason, retry),
  status: ({ status }) => afterStatus(status),
};

for await (const line of createInterface({ input: process.stdin })) {
  const one = JSON.parse(line);
  console.log(JSON.stringify(machines[one.machine](one)));
}
