"""A query, or a whole view, that one client follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.contracts.position import Position
from tailrace.gateway.connection.close_reasons import FAULT, end, ending_of
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.live.positions import Reset
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.problems import Problem

if TYPE_CHECKING:
    from tailrace.gateway.live.queries.snapshot import QueryJoining
    from tailrace.gateway.live.queries.watched import FollowedQuery

log = logging.getLogger(__name__)


class QuerySubscription:
    """A wire and the query it is fed from; `where` is None for a whole view. It is live from `ready` on.

    `outer` is what it is a part of, where it is. `query` is what frames name it by, `filter` what its client's rights
    add to it. `position` is what its client came with, `reset` what it is to be told when it comes in. `begun` says
    that it may have been written something since.
    While it is behind, `seen` is the last update that it was written, and `offsets` the position it has by that.
    """

    def __init__(
        self,
        joining: QueryJoining,
        wire: Wire,
        id: str | None,
        query: str,
        view: str,
        where: str | None,
        filter: str | None,
        position: str | None,
    ) -> None:
        self.wire = wire
        self.id = id
        self.outer: Subscription | None = None
        self.query = query
        self.view = view
        self.where = where
        self.filter = filter
        self.position = position
        self.reset: Reset | None = None
        self.followed: FollowedQuery | None = None
        self.live = False
        self.begun = False
        self.seen = 0
        self.offsets: Mapping[int, int] = {}
        self._joining = joining
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to join."""
        if not self._closed:
            self._task = asyncio.create_task(self._join())

    def again(self, position: str | None, reset: Reset | None) -> None:
        """Join once more: after a reset, or from a position of its own."""
        self._leave()
        self.position, self.reset, self.begun = position, reset, False
        self.start()

    def pause(self) -> None:
        """The client reads too slowly: what changes is kept for it, the newest of each key."""
        if self.live and self.followed is not None:
            self.followed.pause(self)

    def resume(self) -> None:
        """The client has caught up."""
        followed = self.followed
        if not self.live or followed is None or followed.resume(self):
            return
        # More has changed than is kept: it goes on from its position as one that comes back does.
        position = Position(followed.view.lineage, followed.view.generation, self.offsets)
        self._leave()
        self.position = str(position)
        self._task = asyncio.create_task(self._join(ready=False))

    def stop(self) -> None:
        """The client is gone."""
        if self._task is not None:
            self._task.cancel()
        if self.followed is not None:
            self.followed.silence(self)
        self.live = False

    def close(self) -> None:
        """Leave, and leave nothing behind."""
        self._closed = True
        self._leave()

    async def _join(self, *, ready: bool = True) -> None:
        try:
            await self._joining.join(self, ready=ready)
        except Problem as problem:
            end(self, problem, ending_of(problem))
        except Exception:
            # The client connects again, with the position it has.
            log.exception("join=failed view=%s query=%r", self.view, (self.where or "")[:200])
            end(self, Problem(500, "internal error", remedy="Subscribe again, with the last position."), FAULT)

    def _leave(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None
        self.live = False
        if self.followed is not None:
            followed, self.followed = self.followed, None
            self._joining.leave(self, followed)
