"""All open connections that carry frames: kept alive, ended if their clients do not read, drained at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from tailrace.gateway.connection.close_reasons import SHUTDOWN, SLOW
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing

log = logging.getLogger(__name__)

# Connections take turns in being kept alive, so that no turn of the loop has to write to all of them.
SLOTS = 15
# A drain ends connections in batches: each of at least `_BATCH`, at most `_BATCHES`, within this part of the grace.
_BATCH = 100
_BATCHES = 40
_SPREAD = 0.75


class Connections:
    """Every open connection. `flush` writes what waits for the end of the loop's turn."""

    def __init__(self, metrics: Metrics, timing: Timing, flush: Callable[[], None]) -> None:
        self._metrics = metrics
        self._timing = timing
        self._flush = flush
        self._wires: list[set[Wire]] = [set() for _ in range(SLOTS)]
        self._slot = 0
        self.draining = False
        self._empty = asyncio.Event()

    def open(self, wire: Wire) -> None:
        """Look after a connection from now on."""
        self._slot = (self._slot + 1) % SLOTS
        self._wires[self._slot].add(wire)
        self._metrics.opened(wire.surface.name)
        if self.draining:
            wire.finish(SHUTDOWN)

    def close(self, wire: Wire) -> None:
        for slot in self._wires:
            if wire in slot:
                slot.remove(wire)
                self._metrics.closed(wire.surface.name, wire.ending.reason if wire.ending is not None else "client")
        if self.draining and not any(self._wires):
            self._empty.set()

    def wires(self) -> list[Wire]:
        return [wire for slot in self._wires for wire in slot]

    async def run_keep_alive(self) -> None:
        """Keep every connection alive, until cancelled."""
        slot = 0
        while True:
            await asyncio.sleep(self._timing.keep_alive / SLOTS)
            self.keep_alive(slot := (slot + 1) % SLOTS)

    async def run_end_slow(self) -> None:
        """End clients that do not read, until cancelled."""
        while True:
            await asyncio.sleep(self._timing.slow / 4)
            self.end_slow(self._timing.slow)

    def keep_alive(self, slot: int) -> None:
        """Keep the connections of a slot alive, except those of clients that do not read."""
        for wire in tuple(self._wires[slot % SLOTS]):
            if wire.surface.keep_alive and not wire.paused and not wire.closed.done():
                wire.send(wire.surface.keep_alive)

    def end_slow(self, limit: float) -> None:
        """Cut off every client that has read nothing of what waits for it for `limit` seconds.

        No writer is involved: a client that does not read would hold up its own deadline.
        """
        now = asyncio.get_running_loop().time()
        for wire in self.wires():
            if wire.stuck(now) >= limit:
                wire.finish(SLOW)
                wire.abort()

    async def drain(self, grace: float) -> None:
        """End every connection in batches, within `grace` seconds. Then cut off clients that do not read.

        The batches keep ten thousand clients from connecting to the next gateway in one moment.
        """
        self.draining = True
        end = asyncio.get_running_loop().time() + grace
        wires = self.wires()
        log.info("drain=started streams=%d", len(wires))
        size = max(_BATCH, -(-len(wires) // _BATCHES))
        for first in range(0, len(wires), size):
            if first:
                await asyncio.sleep(grace * _SPREAD / _BATCHES)
            self._flush()
            for wire in wires[first : first + size]:
                wire.finish(SHUTDOWN)
        if not any(self._wires):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await self._empty.wait()
        for wire in self.wires():
            wire.abort()
