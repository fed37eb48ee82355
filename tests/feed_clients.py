"""Clients of a feed that check every byte they get, and the link that their gateway listens to."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from feed_store_model import FeedStoreModel
from tailrace.contracts.position import Position
from tailrace.gateway.connection.wire import Framing, Wire


class Link:
    """A pub/sub link that is always up."""

    up = True

    def __init__(self) -> None:
        self.wanted: set[bytes] = set()

    def join(self, channel: bytes) -> None:
        assert channel not in self.wanted
        self.wanted.add(channel)

    def leave(self, channel: bytes) -> None:
        self.wanted.remove(channel)

    async def joined(self, channel: bytes) -> None:
        assert channel in self.wanted


@dataclass
class Client:
    """A connection. `seen` has the offsets that came since the last reset, and `base` is the offset before the first.

    `base` is None if the first event may be any: after a reset, or if the client takes all that is kept.
    """

    model: FeedStoreModel
    position: str | None
    base: int | None
    frames: list[str] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    ready: bool = False
    room: int | None = None
    last: str | None = None
    broken: list[AssertionError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wire = Wire(self.write, lambda: None, Framing.PLAIN)

    def write(self, data: bytes) -> None:
        # The gateway would take an error here for one of the transport, so it is kept until the step is done.
        try:
            self.read(data)
        except AssertionError as error:
            self.broken.append(error)

    def read(self, data: bytes) -> None:
        assert not self.wire.paused, "nothing is written to who does not read"
        for block in data.decode().split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            self.take(fields["event"], fields.get("id"), json.loads(fields["data"]))
        if self.room is not None:
            self.room -= 1
            if self.room <= 0:
                self.room = None
                self.wire.pause_writing()

    def take(self, event: str, id: str | None, data: Any) -> None:
        self.frames.append(event)
        if event == "reset":
            self.base, self.seen, self.ready = None, [], False
        elif event == "ready":
            assert id is not None and not self.ready
            offset = offset_of(id)
            self.check(offset, inclusive=True)
            self.base, self.ready = max(offset, self.base if self.base is not None else -1), True
        elif event == "event":
            offset = data["n"]
            assert id is not None and offset_of(id) == offset
            self.check(offset)
            self.seen.append(offset)
            self.base = offset
        self.last = id or self.last

    def check(self, offset: int, *, inclusive: bool = False) -> None:
        """Assert that everything from the base to this offset was sent."""
        if self.base is None:
            return
        assert inclusive or offset > self.base, "every event once, in order"
        between = [n for n in self.model.written if self.base < n < offset + inclusive]
        assert not between, f"{between} were not sent, and nothing was said: {self.frames}"


def offset_of(id: str) -> int:
    position = Position.parse(id)
    assert position is not None
    return position.offsets.get(0, -1)


class Errors(logging.Handler):
    """Keeps what the gateway logs as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))
