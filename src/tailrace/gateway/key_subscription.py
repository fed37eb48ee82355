"""Some keys of one view, followed on one wire.

One key is written to straight by its `Followed`. Several are gathered: the frames of a tick are one write, and over
Server-Sent Events only the last of them has an id, a `Vector` over partitions. It moves only

- at `ready`: up to what the reads of the snapshot have seen of all keys of a partition, and
- at the end of a tick: up to what was heard, when all of it is in this write or an earlier one, and nothing was missed.

What a read repairs, what comes while the link is in doubt, what is written while the client lags and while keys are
being added moves nothing: it comes once more, at worst, to a client that resumes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.gateway import notices
from tailrace.gateway.endings import FAULT, GONE, end
from tailrace.gateway.follower import Follower
from tailrace.gateway.frames import with_id
from tailrace.gateway.known import KnownView
from tailrace.gateway.problems import Problem
from tailrace.gateway.resume import After, Fresh, Reset, offsets, rebuilt
from tailrace.gateway.subscription import Subscription
from tailrace.gateway.vector import Vector
from tailrace.gateway.wire import Wire
from tailrace.position import Position
from tailrace.store.reader import Held

if TYPE_CHECKING:
    from tailrace.gateway.joining import Joining

log = logging.getLogger(__name__)

_Entries = dict[bytes, Fresh | After] | Reset
_Enter = Callable[[list[Follower], Mapping[bytes, Held], _Entries], None]


class KeySubscription:
    """Follows keys; `positions` has the position of some keys, or None for one that was never sent; `position` is for
    all others.

    `growing`: keys may be added and removed while it is live. `outer`: what it is a part of, where it is.
    """

    __slots__ = (
        "_asked",
        "_followers",
        "_gathers",
        "_hub",
        "_joining",
        "_missed",
        "_pending",
        "_reset",
        "_slow",
        "_tasks",
        "_told",
        "_vector",
        "_view",
        "id",
        "live",
        "outer",
        "wire",
    )

    def __init__(
        self,
        joining: Joining,
        wire: Wire,
        view: KnownView,
        keys: Sequence[bytes],
        *,
        id: str | None = None,
        position: str | None = None,
        positions: Mapping[bytes, str | None] | None = None,
        growing: bool = False,
    ) -> None:
        self.wire = wire
        self.id = id
        self.outer: Subscription | None = None
        self.live = False
        self._joining = joining
        self._hub = joining.hub
        self._view = view
        known = positions or {}
        self._asked: dict[bytes, str | None] = {key: known.get(key, position) for key in keys}
        self._reset: Reset | None = None
        self._gathers = growing or len(self._asked) != 1
        self._followers: dict[bytes, Follower] = {}
        self._tasks: dict[asyncio.Task[None], list[bytes]] = {}
        self._vector = Vector(view, self._hub.sure)
        self._pending: list[bytes] = []
        self._missed: dict[Follower, int] = {}
        self._told: Position | None = None
        self._slow = wire.paused

    @property
    def keys(self) -> list[bytes]:
        """The keys that are followed now."""
        return list(self._asked)

    def start(self) -> None:
        """Begin to join, or to join again after `rebuild`."""
        view = self._joining.known.views.get(self._view.name)
        if view is None:
            remedy = "The view is no longer declared: follow another one."
            end(self, Problem(404, "unknown view", view=self._view.name, remedy=remedy), GONE)
            return
        self._view = view
        self._vector = Vector(view, self._hub.sure)
        self._join(self.keys, self._enter)

    def rebuild(self) -> None:
        """Leave, to be started again: the view was rebuilt or removed.

        Who has not come in yet was told nothing of the build before, and is judged by its own position.
        """
        view = self._joining.known.views.get(self._view.name)
        if self.live and view is not None:
            self._asked = dict.fromkeys(self._asked)
            self._reset = rebuilt(view)
        self.close()

    def add(self, keys: Sequence[bytes]) -> None:
        """Follow more keys: their rows come. Their partitions leave the vector until then."""
        if not self._gathers:
            raise RuntimeError("expected a subscription that was made as `growing`: others keep their keys")
        new = [key for key in dict.fromkeys(keys) if key not in self._asked]
        self._asked.update(dict.fromkeys(new))
        if self.live and self._joining.known.views.get(self._view.name) != self._view:
            # Nobody has told a subscription without keys that its view was rebuilt.
            self.rebuild()
            self.start()
        elif self.live:
            self._join_more(new)
        elif self._tasks and new:
            self.close()
            self.start()

    def remove(self, keys: Sequence[bytes]) -> None:
        """Follow some keys no longer: `gone` comes for those that held a row."""
        removed = {key for key in keys if key in self._asked}
        for key in removed:
            del self._asked[key]
        if not self.live:
            if self._tasks and removed:
                self.close()
                self.start()
            return
        for key in removed:
            was_live = self._followers[key].live
            follower = self._detach(key)
            followed = follower.followed
            if was_live and followed.standing.present:
                self._gather(followed.encoded(followed.absence(followed.standing.offset), follower))
        # Who waits for a key that is no longer wanted would wait for ever: the others of its join start again.
        for task, joining in tuple(self._tasks.items()):
            if not removed.isdisjoint(joining):
                task.cancel()
                del self._tasks[task]
                self._vector.expect_no_more(map(self._view.partition, joining))
                again = [key for key in joining if key not in removed]
                for key in again:
                    self._detach(key)
                self._join_more(again)
        self._vector.keep(set(map(self._view.partition, self._asked)))

    def pause(self) -> None:
        """The client reads too slowly: only the newest row of each key waits for it."""
        if self._slow:
            return
        self._slow = True
        if self.live and not self._gathers:
            for follower in self._followers.values():
                follower.followed.pause(follower)

    def resume(self) -> None:
        """The client has caught up; what it has missed may make it slow again."""
        if not self._slow:
            return
        # What waits for the flush is part of the newest row: it counts as missed, too.
        for follower in tuple(self._missed):
            follower.followed.flush()
        self._slow = False
        if self.live and not self._gathers:
            for follower in self._followers.values():
                follower.followed.resume(follower)
        missed, self._missed = self._missed, {}
        for follower, changes in missed.items():
            self._joining.metrics.conflated(changes - 1)
            self._gather(follower.followed.encoded(follower.followed.newest(), follower))

    def stop(self) -> None:
        """Write nothing more; `close` follows."""
        self._pending.clear()
        for follower in self._followers.values():
            follower.followed.silence(follower)

    def close(self) -> None:
        """Leave every key."""
        self.live = False
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        for follower in self._followers.values():
            self._hub.detach(follower)
        self._followers.clear()
        self._pending.clear()
        self._missed.clear()
        self._told = None

    def take(self, follower: Follower, frames: bytes, count: int) -> bool:
        """Gather a key's changes, or note that the client has missed them; True where they are to be written."""
        if self._slow:
            self._missed[follower] = self._missed.get(follower, 0) + count
            return False
        self._gather(frames)
        return True

    def write(self) -> None:
        """Write what was gathered in this tick, with the position that it reaches."""
        pending, self._pending = self._pending, []
        if not pending or self.wire.closed.done():
            return
        body = b"".join(pending)
        if not self.wire.socket and not self._missed:
            self._vector.advance()
            if (position := self._vector.position) != self._told:
                self._told = position
                body = with_id(body, str(position))
        self.wire.send(body)

    def _gather(self, frames: bytes) -> None:
        if not self._pending:
            self._hub.gather(self)
        self._pending.append(frames)

    def _join(self, keys: list[bytes], enter: _Enter) -> None:
        gatherer = self if self._gathers else None
        followers = [self._hub.attach(self._view, key, self, gatherer) for key in keys]
        self._followers.update(zip(keys, followers, strict=True))
        task = asyncio.create_task(self._joined(followers, enter))
        self._tasks[task] = keys
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _join_more(self, keys: list[bytes]) -> None:
        if keys:
            self._vector.expect(map(self._view.partition, keys))
            self._join(keys, self._enter_more)

    def _detach(self, key: bytes) -> Follower:
        follower = self._followers.pop(key)
        self._missed.pop(follower, None)
        self._hub.detach(follower)
        return follower

    async def _joined(self, followers: list[Follower], enter: _Enter) -> None:
        try:
            asked = {follower.followed.key: self._asked.get(follower.followed.key) for follower in followers}
            held, entries = await self._joining.judged(self, followers, asked)
            await self.wire.writable()
            if not self.wire.closed.done():
                enter(followers, held, entries)
        except Exception:
            log.exception("join=failed view=%s keys=%d", self._view.name, len(followers))
            end(self, Problem(500, "internal error", remedy="Subscribe again, with the last position."), FAULT)

    def _enter(self, followers: list[Follower], held: Mapping[bytes, Held], entries: _Entries) -> None:
        """Write the snapshot and `ready`, and make every follower live, all in one tick."""
        view, metrics, surface = self._view, self._joining.metrics, self.wire.framing.surface
        whole = self._reset or (entries if isinstance(entries, Reset) else None)
        snapshot: list[bytes] = []
        if whole is not None:
            everything = Position(view.lineage, view.generation, {})
            snapshot.append(notices.reset(self, whole.reason, whole.message, everything))
            metrics.reset(whole.reason)
            metrics.sent("reset", 1, len(snapshot[-1]), surface)
        self.live, self._reset = True, None
        snapshot.extend(self._snapshot(followers, held, whole or entries))
        snapshot.append(self._ready(followers))
        metrics.sent("ready", 1, len(snapshot[-1]), surface)
        self.wire.send(b"".join(snapshot))

    def _enter_more(self, followers: list[Follower], held: Mapping[bytes, Held], entries: _Entries) -> None:
        """Write the rows of keys that were added; their partitions join the vector again at the end of this tick."""
        for frame in self._snapshot(followers, held, entries):
            self._gather(frame)

    def _snapshot(self, followers: list[Follower], held: Mapping[bytes, Held], entries: _Entries) -> list[bytes]:
        """The rows that the client lacks; every follower is live from here on."""
        found, courses = [], {}
        for follower in followers:
            followed = follower.followed
            followed.flush()
            entry = entries if isinstance(entries, Reset) else entries[followed.key]
            row = followed.missing(entry, held[followed.key])
            if row is not None:
                found.append(followed.encoded(row, follower))
            followed.enter(follower)
            courses[followed.partition] = followed.course
        self._vector.add(offsets(self._view, held), courses)
        return found

    def _ready(self, followers: list[Follower]) -> bytes:
        view = self._view
        if self._gathers or self.wire.socket:
            self._vector.advance()
            position = self._told = self._vector.position
        else:
            (followed,) = (follower.followed for follower in followers)
            offset = max(followed.standing.offset, self._vector.position.offsets.get(followed.partition, -1))
            position = Position(view.lineage, view.generation, {followed.partition: offset} if offset >= 0 else {})
        about = {"view": view.name, "key": [column.name for column in view.key], "generation": view.generation}
        return notices.ready(self, about, position)
