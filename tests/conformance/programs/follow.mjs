// A program that uses tailrace.js. It prints a line of JSON for all that it hears, and takes orders on its input.

import { createInterface } from "node:readline";
import { connect } from "../../../clients/js/tailrace.js";

const options = JSON.parse(process.argv[2]);
const say = (fields) => console.log(JSON.stringify(fields));
const status = (name) => (state, detail) => say({ name, type: "status", status: state, detail: detail?.details ?? detail });

const subscriptions = new Map();
let going = Promise.resolve();
let go = () => {};

const tokens = options.tokens;
const client = connect(options.url, {
  transport: options.transport ?? "auto",
  timing: options.timing,
  ...(tokens ? { token: () => (tokens.length > 1 ? tokens.shift() : tokens[0]) } : {}),
});
client.onstatus = status("");

async function read(name, subscription) {
  try {
    for await (const change of subscription) {
      say({ name, ...change });
      await going;
    }
  } catch (error) {
    say({ name, type: "refused", message: error.message, details: error.details });
  }
  say({ name, type: "end" });
}

for await (const line of createInterface({ input: process.stdin })) {
  const { name = "", do: verb, arguments: values, ...more } = JSON.parse(line);
  if (verb === "close") break;
  else if (verb === "pause") going = new Promise((resolve) => (go = resolve));
  else if (verb === "go on") go();
  else if (verb === "rows") say({ name, type: "rows", rows: Object.fromEntries(subscriptions.get(name).rows) });
  else if (verb === "leave") subscriptions.get(name).close();
  else {
    const subscription = client[verb](...values, { ...more, onstatus: status(name) });
    subscriptions.set(name, subscription);
    read(name, subscription);
  }
}
client.close();
process.stdin.destroy();
