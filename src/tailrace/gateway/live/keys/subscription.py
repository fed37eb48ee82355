"""Some keys of one view, followed on one wire.

One key is written to straight by its `Followed`; several are gathered, see `gathering`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.connection.close_reasons import FAULT, GONE, end
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames import notices
from tailrace.gateway.frames.key_messages import SocketFrames
from tailrace.gateway.frames.sse import Frames
from tailrace.gateway.live.keys.follower import Follower
from tailrace.gateway.live.keys.gathering import Gathering
from tailrace.gateway.live.positions import After, Fresh, Reset, offsets, rebuilt
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.problems import Problem
from tailrace.store.layout.row import Row
from tailrace.store.read.reader import Held

if TYPE_CHECKING:
    from tailrace.gateway.live.keys.snapshot import Joining

log = logging.getLogger(__name__)

_Entries = dict[bytes, Fresh | After] | Reset
_Enter = Callable[[list[Follower], Mapping[bytes, Held], _Entries], None]


class KeySubscription:
    """Follows keys; `positions` has the position of some keys, or None for one that was never sent; `position` is for
    all others.

    `growing`: keys may be added and removed while it is live. `departed`: keys that the client may hold though it
    follows them no longer, or anew. `reset`: what it is told. `outer`: what it is a part of, where it is.
    """

    __slots__ = (
        "_asked",
        "_departed",
        "_followers",
        "_gathering",
        "_hub",
        "_joining",
        "_reset",
        "_slow",
        "_tasks",
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
        departed: Iterable[bytes] = (),
        reset: Reset | None = None,
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
        self._reset = reset
        several = growing or len(self._asked) != 1
        self._gathering = Gathering(wire, self._hub, joining.metrics, view) if several else None
        self._followers: dict[bytes, Follower] = {}
        self._tasks: dict[asyncio.Task[None], list[bytes]] = {}
        # Of these the client may hold rows from an earlier connection.
        self._departed = set(departed)
        self._slow = wire.paused

    @property
    def keys(self) -> list[bytes]:
        """The keys that are followed now."""
        return list(self._asked)

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self._asked)

    def start(self) -> None:
        """Begin to join, or to join again after `rebuild`."""
        view = self._joining.known.views.get(self._view.name)
        if view is None:
            remedy = "The view is no longer declared: follow another one."
            end(self, Problem(404, "unknown view", view=self._view.name, remedy=remedy), GONE)
            return
        self._view = view
        if self._gathering is not None:
            self._gathering.begin(view)
        self._join(self.keys, self._enter)

    def rebuild(self) -> None:
        """Leave, to be started again: the view was rebuilt or removed.

        Who has not come in yet was told nothing of the build before, and is judged by its own position.
        """
        view = self._joining.known.views.get(self._view.name)
        if self.live and view is not None:
            self._asked = dict.fromkeys(self._asked)
            self._departed = set()
            self._reset = rebuilt(view)
        self.close()

    def renumber(self, change: int) -> None:
        """The keys are now those of a stream after this change of them."""
        self._growing().change = change

    def add(self, keys: Sequence[bytes]) -> None:
        """Follow more keys: their rows come. Their partitions leave the vector until then."""
        gathering = self._growing()
        new = [key for key in dict.fromkeys(keys) if key not in self._asked]
        self._asked.update(dict.fromkeys(new))
        if self.live and self._joining.known.views.get(self._view.name) != self._view:
            # Nobody has told a subscription without keys that its view was rebuilt.
            self.rebuild()
            self.start()
        elif self.live:
            self._join_more(gathering, new)
        elif self._tasks and new:
            self.close()
            self.start()

    def remove(self, keys: Sequence[bytes]) -> None:
        """Follow some keys no longer: `gone` comes for each."""
        gathering = self._growing()
        removed = {key for key in keys if key in self._asked}
        for key in removed:
            if self._asked.pop(key) is not None and not self.live:
                self._departed.add(key)
        if not self.live:
            if self._tasks and removed:
                self.close()
                self.start()
            return
        for key in removed:
            was_live = self._followers[key].live
            follower = self._detach(gathering, key)
            followed = follower.followed
            if was_live:
                # Also where the key holds nothing now: the client may not have heard of that yet.
                gathering.add(followed.encoded(followed.absence(followed.standing.offset), follower))
        # Who waits for a key that is no longer wanted would wait for ever: the others of its join start again.
        for task, joining in tuple(self._tasks.items()):
            if not removed.isdisjoint(joining):
                task.cancel()
                del self._tasks[task]
                gathering.vector.expect_no_more(map(self._view.partition, joining))
                again = [key for key in joining if key not in removed]
                for key in again:
                    self._detach(gathering, key)
                self._join_more(gathering, again)
        gathering.vector.keep({follower.followed.partition for follower in self._followers.values()})

    def pause(self) -> None:
        """The client reads too slowly: only the newest row of each key waits for it."""
        if self._slow:
            return
        self._slow = True
        if self._gathering is not None:
            self._gathering.pause()
        elif self.live:
            for follower in self._followers.values():
                follower.followed.pause(follower)

    def resume(self) -> None:
        """The client has caught up; what it has missed may make it slow again."""
        if not self._slow:
            return
        self._slow = False
        if self._gathering is not None:
            self._gathering.resume()
        elif self.live:
            for follower in self._followers.values():
                follower.followed.resume(follower)

    def stop(self) -> None:
        """Write nothing more; `close` follows."""
        if self._gathering is not None:
            self._gathering.clear()
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
        if self._gathering is not None:
            self._gathering.clear()

    def _join(self, keys: list[bytes], enter: _Enter) -> None:
        followers = [self._hub.attach(self._view, key, self, self._gathering) for key in keys]
        self._followers.update(zip(keys, followers, strict=True))
        task = asyncio.create_task(self._joined(followers, enter))
        self._tasks[task] = keys
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _join_more(self, gathering: Gathering, keys: list[bytes]) -> None:
        if keys:
            gathering.vector.expect(map(self._view.partition, keys))
            self._join(keys, self._enter_more)

    def _detach(self, gathering: Gathering, key: bytes) -> Follower:
        follower = self._followers.pop(key)
        gathering.forget(follower)
        self._hub.detach(follower)
        return follower

    def _growing(self) -> Gathering:
        if self._gathering is None:
            raise RuntimeError("expected a subscription that was made as `growing`: others keep their keys")
        return self._gathering

    async def _joined(self, followers: list[Follower], enter: _Enter) -> None:
        try:
            asked = {follower.followed.key: self._asked.get(follower.followed.key) for follower in followers}
            held, entries = await self._joining.judged(self, followers, asked)
            await self.wire.writable()
            if not self.wire.closed.done():
                # From here on its keys are live, though the task ends a little later.
                self._tasks = {task: keys for task, keys in self._tasks.items() if task is not asyncio.current_task()}
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
            change = self._gathering.change if self._gathering is not None else 0
            everything = Position(view.lineage, view.generation, {}, change)
            snapshot.append(notices.reset(self, whole.reason, whole.message, everything))
            metrics.reset(whole.reason)
            metrics.sent("reset", 1, len(snapshot[-1]), surface)
        self.live, self._reset = True, None
        if whole is None:
            snapshot.extend(map(self._departure, self._departed))
        self._departed = set()
        snapshot.extend(self._snapshot(followers, held, whole or entries))
        snapshot.append(self._ready(followers, held))
        metrics.sent("ready", 1, len(snapshot[-1]), surface)
        self.wire.send(b"".join(snapshot))

    def _departure(self, key: bytes) -> bytes:
        if self.wire.socket:
            return SocketFrames(self._view, key).gone(self._view.generation, -1)
        return Frames(self._view, key).bare(Row(self._view.generation, 0, -1, 0, None))

    def _enter_more(self, followers: list[Follower], held: Mapping[bytes, Held], entries: _Entries) -> None:
        """Write the rows of keys that were added; their partitions join the vector again at the end of this tick."""
        gathering = self._growing()
        for frame in self._snapshot(followers, held, entries):
            gathering.add(frame)

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
        if self._gathering is not None:
            self._gathering.vector.add(offsets(self._view, held), courses)
        return found

    def _ready(self, followers: list[Follower], held: Mapping[bytes, Held]) -> bytes:
        view = self._view
        if self._gathering is not None:
            position = self._gathering.ready()
        else:
            (followed,) = (follower.followed for follower in followers)
            offset = max(followed.standing.offset, *offsets(view, held).values())
            position = Position(view.lineage, view.generation, {followed.partition: offset} if offset >= 0 else {})
        about = {"view": view.name, "key": [column.name for column in view.key], "generation": view.generation}
        return notices.ready(self, about, position)
