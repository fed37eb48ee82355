"""Several keys on one connection: whatever happens, a position claims nothing that was not sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway_model import Parts, messages
from tailrace.catalog import Column
from tailrace.gateway.course import Course
from tailrace.gateway.followed import Followed
from tailrace.gateway.key_subscription import KeySubscription
from tailrace.gateway.known import KnownView
from tailrace.gateway.sweep import Passage
from tailrace.gateway.wire import Framing, Wire
from tailrace.position import Position

VIEW = KnownView("names", "0123abcd", 1, 2, (Column("name", "string"),))
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]


class Client:
    """A client of several keys. It holds a copy of their rows and the last id, and resumes by it."""

    def __init__(self, parts: Parts, keys: list[bytes], *, socket: bool = False) -> None:
        self.parts = parts
        self.keys = list(keys)
        self.socket = socket
        self.copy: dict[bytes, int] = {}
        self.id: str | None = None
        self.ready = self.resets = self.frames = 0
        self.full = False
        self.connect()

    def connect(self) -> None:
        """Come (back), with the last position."""
        framing = Framing.SOCKET if self.socket else Framing.CHUNKED
        self.wire = Wire(self._receive, lambda: None, framing)
        self.subscription = KeySubscription(
            self.parts.joining, self.wire, VIEW, self.keys, id="a", position=self.id, growing=True
        )
        self.wire.stream = self.subscription
        self.full = False
        self.subscription.start()

    def leave(self) -> None:
        """Lose the connection."""
        self.wire.lose()
        self.subscription.close()

    def _receive(self, data: bytes) -> None:
        if self.socket:
            for message in messages(data):
                self._apply(message["type"], message.get("key", "").encode(), message.get("row"), None)
        else:
            _, _, body = data.partition(b"\r\n")
            for block in body[:-4].decode().split("\n\n"):
                fields = dict(line.split(": ", 1) for line in block.split("\n"))
                content = json.loads(fields["data"])
                self._apply(fields["event"], content.get("name", "").encode(), content, fields.get("id"))
        if self.full and not self.wire.paused:
            self.wire.pause_writing()

    def _apply(self, event: str, key: bytes, row: Any, id: str | None) -> None:
        self.frames += 1
        if event == "row":
            key = row["name"].encode()
            assert row["version"] >= self.copy.get(key, -1) or self.resets, "no version goes back"
            self.copy[key] = row["version"]
        elif event == "gone":
            self.copy.pop(key, None)
        elif event == "reset":
            self.resets += 1
            self.copy.clear()
        elif event == "ready":
            self.ready += 1
        self.id = id or self.id

    def check(self) -> None:
        """What the position claims was sent: a resume sends what is newer, so the rest must be here."""
        if self.id is None:
            return
        position, store = Position.parse(self.id), self.parts.store
        assert position is not None
        for key in self.keys:
            partition = VIEW.partition(key)
            claimed = position.offsets.get(partition)
            if claimed is None or not store.whole(partition) or store.offsets[partition] < claimed:
                continue
            row = store.rows.get(key)
            if row is None or row.offset <= claimed:
                held = None if row is None or row.value is None else row.version
                assert self.copy.get(key) == held, f"{self.id} claims {key!r} at {row}, the client has {self.copy}"


class World:
    """Parts, clients and a sweep, which a script moves."""

    def __init__(self) -> None:
        self.parts = Parts(VIEW)
        self.store = self.parts.store
        self.clients: list[Client] = []
        self.version = 0
        self._passage: Passage | None = None
        self._batches: list[list[Followed]] = []

    async def write(self, key: int, gone: bool) -> None:
        self.version += 1
        self.store.write(KEYS[key], self.version, gone=gone)

    async def replay(self, key: int) -> None:
        """The pipeline writes an older version again, at a newer offset."""
        self.store.write(KEYS[key], max(1, self.version - 2), gone=False)

    async def change(self, key: int) -> None:
        """A change comes as far as the link."""
        await self.write(key, False)
        self.store.materialize(VIEW.partition(KEYS[key]), 1000)

    async def flow(self) -> None:
        """What is under way arrives, and is written."""
        await self.hear(1000)
        await self.tick()

    async def materialize(self, partition: int, count: int) -> None:
        self.store.materialize(partition, count)

    async def hear(self, count: int) -> None:
        for _ in range(min(count, len(self.store.flying))):
            self.parts.hub.deliver(*self.store.flying.popleft())

    async def tick(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def connect(self, first: int, count: int, socket: bool) -> None:
        if len(self.clients) < 4:
            self.clients.append(Client(self.parts, KEYS[first : first + count] or KEYS, socket=socket))

    async def reconnect(self, number: int) -> None:
        for client in self.clients[number : number + 1]:
            client.leave()
            # What it does not follow any more, a client drops by itself.
            kept = [] if client.socket else client.keys
            client.copy = {key: version for key, version in client.copy.items() if key in kept}
            client.connect()

    async def add(self, number: int, key: int) -> None:
        for client in self.clients[number : number + 1]:
            if KEYS[key] not in client.keys and client.ready:
                client.keys.append(KEYS[key])
                client.subscription.add([KEYS[key]])
                # Until the rows are there, a stream that is resumed must be told which keys its client was never sent.
                client.id = _without(client.id, VIEW.partition(KEYS[key]))

    async def remove(self, number: int, key: int) -> None:
        for client in self.clients[number : number + 1]:
            if KEYS[key] in client.keys and len(client.keys) > 1:
                client.keys.remove(KEYS[key])
                client.subscription.remove([KEYS[key]])

    async def slow(self, number: int) -> None:
        for client in self.clients[number : number + 1]:
            client.full = True

    async def read(self, number: int) -> None:
        for client in self.clients[number : number + 1]:
            client.full = False
            if client.wire.paused:
                client.wire.resume_writing()

    async def cut(self) -> None:
        self.store.cut()

    async def confirm(self, count: int) -> None:
        self.store.confirm(count)

    async def recover(self) -> None:
        if not self.store.up:
            self.store.recover()
            self.parts.hub.doubt()

    async def lose(self) -> None:
        self.store.lose()

    async def sweep(self, batches: int) -> None:
        """Go on with a pass, or begin one."""
        for _ in range(batches):
            if not self._batches:
                self._passage = Passage(self.parts.hub.followed(), size=2)
                self._batches = list(self._passage.batches)
            if self._batches and self._passage is not None:
                batch = self._batches.pop()
                found = await self.store.held("", batch[0].partition, "", [one.key for one in batch])
                for one, held in zip(batch, found, strict=True):
                    one.learn(held)
                self._passage.read(batch, found)

    async def settle(self) -> None:
        """Everything works again, and nothing more happens."""
        await self.recover()
        for partition in range(VIEW.partitions):
            self.store.materialize(partition, 1000)
        await self.hear(1000)
        for number in range(len(self.clients)):
            await self.read(number)
        for _ in range(30):
            await asyncio.sleep(0)
        self._batches = []
        await self.sweep(20)
        await self.tick()


def _without(id: str | None, partition: int) -> str | None:
    position = Position.parse(id or "")
    if position is None:
        return id
    kept = {p: o for p, o in position.offsets.items() if p != partition}
    return str(Position(position.lineage, position.generation, kept))


key, number = st.integers(0, len(KEYS) - 1), st.integers(0, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), key, st.booleans()),
        st.tuples(st.just("write"), key, st.just(False)),
        st.tuples(st.just("change"), key),
        st.tuples(st.just("change"), key),
        st.tuples(st.just("change"), key),
        st.tuples(st.just("flow")),
        st.tuples(st.just("flow")),
        st.tuples(st.just("replay"), key),
        st.tuples(st.just("materialize"), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("materialize"), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("hear"), st.integers(1, 4)),
        st.tuples(st.just("hear"), st.integers(1, 4)),
        st.tuples(st.just("tick")),
        st.tuples(st.just("tick")),
        st.tuples(st.just("connect"), st.integers(0, 3), st.integers(2, 6), st.booleans()),
        st.tuples(st.just("reconnect"), number),
        st.tuples(st.just("add"), number, key),
        st.tuples(st.just("remove"), number, key),
        st.tuples(st.just("slow"), number),
        st.tuples(st.just("read"), number),
        st.tuples(st.just("cut")),
        st.tuples(st.just("confirm"), st.integers(1, 3)),
        st.tuples(st.just("recover")),
        st.tuples(st.just("lose")),
        st.tuples(st.just("sweep"), st.integers(1, 3)),
    ),
    min_size=30,
    max_size=120,
)


async def play(script: list[tuple[Any, ...]]) -> None:
    world = World()
    await world.connect(0, 6, False)
    for name, *arguments in script:
        await getattr(world, name)(*arguments)
        for client in world.clients:
            if not client.socket:
                client.check()
    await world.settle()
    for client in world.clients:
        held = {name: row.version for name, row in world.store.rows.items() if row.value is not None}
        assert client.copy == {name: version for name, version in held.items() if name in client.keys}
        if not client.socket:
            client.check()
    # Who comes back now, and once more, gets nothing the second time.
    for client in world.clients:
        await _idle_twice(client)


async def _idle_twice(client: Client) -> None:
    if client.socket:
        return
    for again in range(2):
        client.leave()
        before, client.ready = client.frames, 0
        client.connect()
        for _ in range(100):
            await asyncio.sleep(0)
        assert client.ready
        assert not again or client.frames == before + 1, "a second idle reconnect gives nothing but ready"
    client.leave()


# Three keys of one partition.
X, Y, Z = [n for n, name in enumerate(KEYS) if VIEW.partition(name) == VIEW.partition(KEYS[0])][:3]
START = [("flow",), ("change", Z), ("change", X), ("flow",)]
LOST = [("cut",), ("change", Y), ("recover",)]


@settings(max_examples=200, deadline=None)
@given(steps)
# A removed key's `gone` is written while a change of another key is held back.
@example([*START, ("slow", 0), ("change", X), ("flow",), ("change", Y), ("flow",), ("remove", 0, Z), ("tick",)])
# Keys are added while a change of another key is lost.
@example([*START, ("remove", 0, Z), ("tick",), *LOST, ("add", 0, Z), *[("tick",)] * 5])
# A change comes while the rows of added keys are on their way.
@example([*START, ("remove", 0, Z), ("tick",), ("add", 0, Z), ("change", X), ("hear", 9), ("tick",), ("flow",)])
# A pass of the sweep that began before the link was replaced ends after it.
@example([*START, ("sweep", 1), *LOST, ("sweep", 3), ("change", X), ("flow",)])
@example([*START, ("sweep", 2), *LOST, ("sweep", 2), ("change", X), ("flow",)])
@example([*START, ("sweep", 3), *LOST, ("sweep", 1), ("change", X), ("flow",)])
# The next link has one channel, and not yet the others.
@example([*START, ("cut",), ("confirm", 1), ("change", Y), ("change", Z), ("change", X), ("flow",)])
def test_a_vector_claims_only_what_was_sent_and_in_the_end_all_is(script: list[tuple[Any, ...]]) -> None:
    asyncio.run(play(script))


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_frames_of_a_tick_are_one_write_whose_last_frame_has_the_position() -> None:
    world = World()
    await world.connect(0, 6, False)
    await world.settle()
    written: list[bytes] = []
    client = world.clients[0]
    client.wire.write = written.append
    for key in (0, 1, 2, 1):
        await world.change(key)
    await world.flow()
    (data,) = written
    blocks = data.partition(b"\r\n")[2][:-4].decode().split("\n\n")
    assert len(blocks) == 4 and [("id: " in block) for block in blocks] == [False, False, False, True]


@in_loop
async def test_while_the_link_is_in_doubt_frames_have_no_position() -> None:
    world = World()
    await world.connect(0, 6, False)
    await world.settle()
    before = world.clients[0].id
    world.parts.hub.doubt()
    await world.change(0)
    await world.flow()
    assert world.clients[0].copy == {KEYS[0]: 1} and world.clients[0].id == before
    await world.sweep(8)
    await world.change(0)
    await world.flow()
    assert world.clients[0].id != before
    assert before is not None


@in_loop
async def test_a_change_that_waits_for_the_flush_is_not_written_twice_to_who_resumes() -> None:
    world = World()
    await world.connect(0, 6, False)
    await world.settle()
    client = world.clients[0]
    client.wire.pause_writing()
    await world.change(X)
    await world.flow()
    await world.change(X)
    await world.hear(9)
    before = client.frames
    client.wire.resume_writing()
    await world.tick()
    assert client.copy == {KEYS[X]: 2} and client.frames == before + 1


def sure(course: Course) -> bool:
    return course.sure


def test_a_course_is_sure_again_after_a_pass_that_began_after_the_last_doubt() -> None:
    course = Course()
    course.hear(5)
    assert sure(course) and course.heard == 5
    note = course.note()
    course.hear(3)
    assert not sure(course), "the store is being restored"
    course.check(note)
    assert not sure(course)
    again = course.note()
    course.doubt()
    course.check(again)
    assert not sure(course), "the link was replaced while the pass ran"
    course.check(course.note())
    assert sure(course) and course.heard == 3


@in_loop
async def test_a_partition_that_is_being_restored_is_not_checked_by_a_pass() -> None:
    world = World()
    await world.connect(0, 6, False)
    await world.change(X)
    await world.flow()
    (client,) = world.clients
    course = client.subscription._followers[KEYS[X]].followed.course
    world.parts.hub.doubt()
    world.store.lose()
    await world.sweep(8)
    assert not sure(course)
    world.store.materialize(VIEW.partition(KEYS[X]), 9)
    await world.sweep(8)
    assert sure(course)
