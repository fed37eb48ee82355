// Uses every part of the types; checked by the TypeScript compiler, never run.

import { Client, Refused, connect } from "../tailrace.js";
import type { Change } from "../tailrace.js";

interface Average {
  movie_id: number;
  rating: number;
}

const client: Client = connect("http://localhost:8080", {
  token: async () => "token",
  transport: "auto",
  timing: { quiet: 1000 },
  parse: (text) => JSON.parse(text),
});
client.onstatus = (status) => console.log(status);

const averages = client.follow<Average>("rating-averages", {
  keys: [362, "71", [1, "2026-01-01"]],
  onrow: (row, key) => console.log(key, row.rating.toFixed(1)),
  ongone(key) {
    console.log(key);
  },
});
averages.onreset = (reason) => console.log(reason);

export async function main(): Promise<void> {
  await averages.ready();
  const held: ReadonlyMap<string, Average> = averages.rows;
  for await (const change of averages) {
    if (change.type === "row") console.log(change.row.rating, held.size);
    else if (change.type === "reset") console.log(change.reason);
  }
  const notices = client.feed<{ text: string }>("notices", "c7", { position: "a0b1c2d3.1.0-12" });
  for await (const change of notices) if (change.type === "event") console.log(change.event.text, change.position);
  const other: Change = { type: "gone", key: "1" };
  try {
    await client.stream("s-7f3a").ready();
  } catch (error) {
    if (error instanceof Refused) console.log(error.details, other);
  }
  // @ts-expect-error: what is held is not to be written to
  held.set("1", { movie_id: 1, rating: 1 });
  // @ts-expect-error: no such transport
  connect(".", { transport: "pigeon" });
  client.close();
}
