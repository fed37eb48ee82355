"""Some keys of one view, followed on one wire.

How a client comes in without a gap:

1. Join the channels of the keys, and wait until Redis confirms: from here on the gateway hears changes.
2. Read the rows and the positions of their partitions, those of a partition together, until every partition
   is whole and of the build that the catalog names.
3. Judge the client's positions.
4. Write the snapshot and `ready`, and make every follower live, all in one turn of the loop.

A change that is published between 1 and 4 is in the read, or waits in `KeyState`. If there is one key, its
`WatchedKey` writes to the wire itself; the frames of several keys are gathered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.connection.close_reasons import GONE
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.frames.frame import About, Frame, place
from tailrace.gateway.live.keys.registry import KeyRegistry
from tailrace.gateway.live.keys.vector import Vector
from tailrace.gateway.live.keys.watched import Follower
from tailrace.gateway.live.positions import After, Ahead, Fresh, Later, Reset, entries, offsets, rebuilt, too_far_ahead
from tailrace.gateway.live.subscription import Behind, Subscription
from tailrace.gateway.problems import Problem
from tailrace.store.read.reader import KeyRead

_Entries = dict[bytes, Fresh | After] | Reset
_Found = tuple[Mapping[bytes, KeyRead], _Entries]
_Enter = Callable[[list[Follower], Mapping[bytes, KeyRead], _Entries], None]


class KeySubscription(Subscription):
    """Follows keys. `positions` has the position of some keys, None for a key that was never sent. `position`
    is for all others.

    `growing`: keys may be added and removed while it is live. `departed`: keys whose rows the client may hold
    though it no longer follows them, or follows them again. `reset`: what the client is told, if it must
    drop what it holds.
    """

    __slots__ = (
        "_asked",
        "_departed",
        "_followers",
        "_gathering",
        "_registry",
        "_reset",
        "_slow",
        "_tasks",
        "_view",
        "live",
    )

    def __init__(
        self,
        registry: KeyRegistry,
        wire: Wire,
        view: ServedView,
        keys: Sequence[bytes],
        *,
        id: str | None = None,
        position: str | None = None,
        positions: Mapping[bytes, str | None] | None = None,
        growing: bool = False,
        departed: Iterable[bytes] = (),
        reset: Reset | None = None,
    ) -> None:
        super().__init__(wire, id, registry.metrics, registry.timing)
        self.live = False
        self._registry = registry
        self._view = view
        known = positions or {}
        self._asked: dict[bytes, str | None] = {key: known.get(key, position) for key in keys}
        self._reset = reset
        several = growing or len(self._asked) != 1
        self._gathering = Gathering(wire, registry, view) if several else None
        self._followers: dict[bytes, Follower] = {}
        self._tasks: dict[asyncio.Task[None], list[bytes]] = {}
        # The client may hold rows of these keys from an earlier connection.
        self._departed = set(departed)
        self._slow = wire.paused

    @property
    def keys(self) -> list[bytes]:
        return list(self._asked)

    @property
    def size(self) -> int:
        return len(self._asked)

    def start(self) -> None:
        """Begin to come in, or to come in again after `rebuild`."""
        view = self._registry.known.views.get(self._view.name)
        if view is None:
            remedy = "The view is no longer declared: follow another one."
            self.end(Problem(404, "unknown view", view=self._view.name, remedy=remedy), GONE)
            return
        self._view = view
        if self._gathering is not None:
            self._gathering.begin(view)
        self._join(self.keys, self._enter)

    def rebuild(self) -> None:
        """Leave, to be started again: the view was rebuilt or removed.

        A client that has not come in yet was told nothing of the build before, and is judged by its own position.
        """
        view = self._registry.known.views.get(self._view.name)
        if self.live and view is not None:
            self._asked = dict.fromkeys(self._asked)
            self._departed = set()
            self._reset = rebuilt(view)
        self.close()

    def renumber(self, change: int) -> None:
        """Note the number of the change of a stream's keys that these keys include."""
        self._growing().change = change

    def add(self, keys: Sequence[bytes]) -> None:
        """Follow more keys. Their partitions leave the vector until their rows are sent."""
        gathering = self._growing()
        new = [key for key in dict.fromkeys(keys) if key not in self._asked]
        self._asked.update(dict.fromkeys(new))
        if self.live and self._registry.known.views.get(self._view.name) != self._view:
            # A subscription without keys was not told that its view was rebuilt.
            self.rebuild()
            self.start()
        elif self.live:
            self._join_more(gathering, new)
        elif self._tasks and new:
            self.close()
            self.start()

    def remove(self, keys: Sequence[bytes]) -> None:
        """Stop following some keys: `gone` comes for each."""
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
                # Also if the key holds nothing now: the client may not have heard of that yet.
                gathering.add(followed.encoded(followed.absence(followed.state.offset), follower))
        # A join that waits for a removed key would wait for ever, so its other keys join again.
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
        self.live = False
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        for follower in self._followers.values():
            self._registry.detach(follower)
        self._followers.clear()
        if self._gathering is not None:
            self._gathering.clear()

    def _join(self, keys: list[bytes], enter: _Enter) -> None:
        followers = [self._registry.attach(self._view, key, self, self._gathering) for key in keys]
        self._followers.update(zip(keys, followers, strict=True))
        task = asyncio.create_task(self.guarded(self._joined, followers, enter))
        self._tasks[task] = keys
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _join_more(self, gathering: Gathering, keys: list[bytes]) -> None:
        if keys:
            gathering.vector.expect(map(self._view.partition, keys))
            self._join(keys, self._enter_more)

    def _detach(self, gathering: Gathering, key: bytes) -> Follower:
        follower = self._followers.pop(key)
        gathering.forget(follower)
        self._registry.detach(follower)
        return follower

    def _growing(self) -> Gathering:
        if self._gathering is None:
            raise RuntimeError("expected a subscription that was made as `growing`: others keep their keys")
        return self._gathering

    async def _joined(self, followers: list[Follower], enter: _Enter) -> None:
        for follower in followers:
            await self._registry.channels.joined(follower.followed.channel)
        held, come = await self.restored(lambda: self._read(followers)) if followers else ({}, {})
        await self.wire.writable()
        if not self.wire.closed.done():
            # From here on the keys are live, though the task ends a little later.
            self._tasks = {task: keys for task, keys in self._tasks.items() if task is not asyncio.current_task()}
            enter(followers, held, come)

    async def _read(self, followers: list[Follower]) -> _Found | Behind[_Found]:
        """Read the keys, and judge the client's positions."""
        view = followers[0].followed.view
        keys = [follower.followed.key for follower in followers]
        found = await self._registry.reads.all(view, keys)
        waits = self._learn(followers, found)
        if waits is not None:
            return Behind(waits)
        held = dict(zip(keys, found, strict=True))
        come = entries({key: self._asked.get(key) for key in keys}, view, held)
        if not isinstance(come, Ahead | Later):
            return held, come
        stored = min(one.offset for one in found if one.offset is not None)
        target = come.offset if isinstance(come, Ahead) else found[0].target
        return Behind((stored, target), (held, too_far_ahead(come, view, stored)))

    def _learn(self, followers: list[Follower], found: Sequence[KeyRead]) -> tuple[int | None, int | None] | None:
        """Take in what was read. If the client has to wait for a partition, return how far that is."""
        waits = None
        for follower, held in zip(followers, found, strict=True):
            if follower.followed.learn(held):
                self.metrics.repaired.inc()
            if not held.whole or held.offset is None or not follower.followed.serves(held):
                waits = waits or (held.offset, held.target)
        return waits

    def _enter(self, followers: list[Follower], held: Mapping[bytes, KeyRead], entries: _Entries) -> None:
        """Write the snapshot and `ready`, and make every follower live, all in one turn of the loop."""
        view, metrics, surface = self._view, self.metrics, self.wire.surface
        whole = self._reset or (entries if isinstance(entries, Reset) else None)
        snapshot: list[bytes] = []
        if whole is not None:
            change = self._gathering.change if self._gathering is not None else 0
            everything = Position(view.lineage, view.generation, {}, change)
            snapshot.append(surface.reset(self.id, whole.reason, whole.message, str(everything)))
            metrics.reset(whole.reason)
            metrics.sent("reset", 1, len(snapshot[-1]), surface.name)
        self.live, self._reset = True, None
        if whole is None:
            about, position = About({"view": view.name}, view), place(view.lineage, view.generation, 0, -1)
            snapshot.extend(surface.bare(Frame(about, key, None, position)) for key in self._departed)
        self._departed = set()
        snapshot.extend(self._snapshot(followers, held, whole or entries))
        snapshot.append(self._ready(followers, held))
        metrics.sent("ready", 1, len(snapshot[-1]), surface.name)
        self.wire.send(b"".join(snapshot))

    def _enter_more(self, followers: list[Follower], held: Mapping[bytes, KeyRead], entries: _Entries) -> None:
        """Write the rows of keys that were added; their partitions join the vector again at the end of this turn."""
        gathering = self._growing()
        for frame in self._snapshot(followers, held, entries):
            gathering.add(frame)

    def _snapshot(self, followers: list[Follower], held: Mapping[bytes, KeyRead], entries: _Entries) -> list[bytes]:
        """The rows that the client lacks; every follower is live from here on."""
        found, progress = [], {}
        for follower in followers:
            followed = follower.followed
            followed.flush()
            entry = entries if isinstance(entries, Reset) else entries[followed.key]
            row = followed.missing(entry, held[followed.key])
            if row is not None:
                found.append(followed.encoded(row, follower))
            followed.enter(follower)
            progress[followed.partition] = followed.progress
        if self._gathering is not None:
            self._gathering.vector.add(offsets(self._view, held), progress)
        return found

    def _ready(self, followers: list[Follower], held: Mapping[bytes, KeyRead]) -> bytes:
        view = self._view
        if self._gathering is not None:
            position = self._gathering.ready()
        else:
            (followed,) = (follower.followed for follower in followers)
            offset = max(followed.state.offset, *offsets(view, held).values())
            position = Position(view.lineage, view.generation, {followed.partition: offset} if offset >= 0 else {})
        about = {"view": view.name, "key": [column.name for column in view.key], "generation": view.generation}
        return self.wire.surface.ready(self.id, about, str(position))


class Gathering:
    """Takes the frames of several keys, and writes those of a turn together. For a slow client, notes what changed.

    On a joint surface, such as Server-Sent Events, only the last frame of a write has an id: the position of a
    `Vector` over partitions. It moves only

    - at `ready`: up to what the reads of the snapshot have seen of all keys of a partition, and
    - at the end of a turn: up to what was heard, if all of it is in this write or an earlier one, and nothing was
      missed.

    Nothing else moves it: not what a read repairs, what comes while the link is in doubt, or what is written
    while the client lags or while keys are being added. At worst, a client that resumes gets that once more.

    `change` is the number of the last change of the keys themselves, if they are a stream's.
    """

    __slots__ = ("_missed", "_pending", "_registry", "_slow", "_told", "_wire", "change", "vector")

    def __init__(self, wire: Wire, registry: KeyRegistry, view: ServedView) -> None:
        self._wire = wire
        self._registry = registry
        self._pending: list[bytes] = []
        self._missed: dict[Follower, int] = {}
        self._slow = wire.paused
        self._told: Position | None = None
        self.change = 0
        self.vector = Vector(view, registry.sure)

    def begin(self, view: ServedView) -> None:
        """Forget everything, because a snapshot of this build of the view follows."""
        self.clear()
        self._told = None
        self.vector = Vector(view, self._registry.sure)

    def ready(self) -> Position:
        """The position that the snapshot reaches: everything that was heard is in it."""
        self.vector.advance()
        self._told = self._position()
        return self._told

    def take(self, follower: Follower, frames: bytes, count: int) -> bool:
        """Gather a key's changes, or note that the client has missed them; True if they are to be written."""
        if self._slow:
            self._missed[follower] = self._missed.get(follower, 0) + count
            return False
        self.add(frames)
        return True

    def add(self, frames: bytes) -> None:
        """Write some frames at the end of this turn."""
        if not self._pending:
            self._registry.tick.gather(self)
        self._pending.append(frames)

    def write(self) -> None:
        """Write what was gathered in this turn, with the position that it reaches."""
        pending, self._pending = self._pending, []
        if not pending or self._wire.closed.done():
            return
        body = b"".join(pending)
        if self._wire.surface.joint and not self._missed:
            self.vector.advance()
            if (position := self._position()) != self._told:
                self._told = position
                body = self._wire.surface.identified(body, str(position).encode())
        self._wire.send(body)

    def pause(self) -> None:
        """The client reads too slowly: only the newest row of each key waits for it."""
        self._slow = True

    def resume(self) -> None:
        """The client has caught up: it gets the newest row of every key that has changed."""
        # What waits for the flush is part of the newest row, so it counts as missed, too.
        for follower in tuple(self._missed):
            follower.followed.flush()
        self._slow = False
        missed, self._missed = self._missed, {}
        for follower, changes in missed.items():
            self._registry.metrics.conflated(changes - 1)
            self.add(follower.followed.encoded(follower.followed.newest(), follower))

    def forget(self, follower: Follower) -> None:
        self._missed.pop(follower, None)

    def clear(self) -> None:
        self._pending.clear()
        self._missed.clear()

    def _position(self) -> Position:
        # While keys are being added, their partitions claim nothing, and the `gone` of removed keys is
        # written first. So the number of the change is true as soon as it is known.
        position = self.vector.position
        return replace(position, change=self.change) if self.change else position
