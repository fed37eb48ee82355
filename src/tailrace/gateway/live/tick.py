"""The tick: changes of one turn of the loop are written at its end or, in a burst, a little later."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Protocol

from tailrace.gateway.connection.close_reasons import FAULT
from tailrace.gateway.connection.pace import Pace
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.metrics import Metrics

log = logging.getLogger(__name__)


class Watched(Protocol):
    """One thing that clients of this gateway follow: a key, a query, or a client of a feed."""

    def flush(self) -> None:
        """Write what has changed since the last flush to every live follower."""

    def wires(self) -> Iterable[Wire]: ...


class Gatherer(Protocol):
    """A subscription of several keys: it gathers their frames and writes them together."""

    def write(self) -> None:
        """Write what was gathered: everything that has changed in this turn has been flushed."""


class Tick:
    """Everything that has changed since the last flush."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._changed: dict[Watched, None] = {}
        self._gathered: list[Gatherer] = []
        self._news = 0
        self._pace = Pace()

    def mark(self, watched: Watched) -> None:
        """Flush `watched` at the end of this turn."""
        self._schedule()
        self._changed[watched] = None

    def gather(self, gatherer: Gatherer) -> None:
        """Call `write` in the next flush, after everything that has changed was flushed."""
        self._schedule()
        self._gathered.append(gatherer)

    def heard(self, timestamp: int | None) -> None:
        """Count a change that came as a message; `timestamp` is that of its source record in ms, if it has one."""
        self._news += 1
        if timestamp is not None:
            self._metrics.delay.observe(max(0.0, time.time() - timestamp / 1000))

    def flush(self) -> None:
        """Write all that has changed."""
        began = time.monotonic()
        self._news = 0
        changed, self._changed = self._changed, {}
        for watched in changed:
            try:
                watched.flush()
            except Exception:
                log.exception("flush=failed what=%s", watched)
                self._metrics.set_aside("flush")
                for wire in set(watched.wires()):
                    wire.finish(FAULT)
        gathered, self._gathered = self._gathered, []
        for gatherer in gathered:
            try:
                gatherer.write()
            except Exception:
                # A transport that refuses is about to call `connection_lost`; the others must not pay for it.
                log.exception("write=refused")
                self._metrics.set_aside("flush")
        self._pace.flushed(time.monotonic() - began)

    def _schedule(self) -> None:
        if not self._changed and not self._gathered:
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        if wait := self._pace.wait(self._news, len(self._changed)):
            asyncio.get_running_loop().call_later(wait, self.flush)
        else:
            self.flush()
