"""A program that uses the Python client. It prints a line of JSON for all that it hears, and takes orders."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

from tailrace.client import Change, Client, Refused, Subscription, Timing


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def told(name: str, change: Change) -> None:
    fields = {field: value for field, value in dataclasses.asdict(change).items() if value is not None}
    say(name=name, type=type(change).__name__.lower(), **fields)


def status(name: str) -> Callable[[str, object], None]:
    def tell(state: str, detail: object) -> None:
        say(name=name, type="status", status=state, detail=getattr(detail, "details", detail))

    return tell


async def read(name: str, subscription: Subscription, paused: asyncio.Event) -> None:
    try:
        async for change in subscription:
            told(name, change)
            await paused.wait()
    except Refused as refused:
        say(name=name, type="refused", message=str(refused), details=refused.details)
    say(name=name, type="end")


async def main(options: dict[str, Any]) -> None:
    subscriptions: dict[str, Subscription] = {}
    going = asyncio.Event()
    going.set()
    timing = Timing(**{name: ms / 1000 for name, ms in options.get("timing", {}).items()})
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    tokens = options.get("tokens")
    client = Client(
        options["url"],
        transport=options.get("transport", "auto"),
        timing=timing,
        token=None if tokens is None else lambda: tokens.pop(0) if len(tokens) > 1 else tokens[0],
        on_status=status(""),
    )
    async with client, asyncio.TaskGroup() as readers:
        while line := await lines.readline():
            order = json.loads(line)
            name, verb = order.pop("name", ""), order.pop("do")
            if verb == "close":
                break
            if verb == "pause":
                going.clear()
            elif verb == "go on":
                going.set()
            elif verb == "rows":
                say(name=name, type="rows", rows=dict(subscriptions[name].rows))
            elif verb == "leave":
                subscriptions[name].close()
            else:
                order["on_status"] = status(name)
                subscriptions[name] = getattr(client, verb)(*order.pop("arguments"), **order)
                readers.create_task(read(name, subscriptions[name], going))
        await client.close()


asyncio.run(main(json.loads(sys.argv[1])))
