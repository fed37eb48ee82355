"""Several keys on one connection: whatever happens, a position claims nothing that was not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.gateway.live.keys.progress import PartitionProgress
from vector_world import KEYS, VIEW, Client, World

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
    world.parts.keys.doubt()
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


def sure(course: PartitionProgress) -> bool:
    return course.sure


def test_a_course_is_sure_again_after_a_pass_that_began_after_the_last_doubt() -> None:
    course = PartitionProgress()
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
    course = client.subscription._followers[KEYS[X]].followed.progress
    world.parts.keys.doubt()
    world.store.lose()
    await world.sweep(8)
    assert not sure(course)
    world.store.materialize(VIEW.partition(KEYS[X]), 9)
    await world.sweep(8)
    assert sure(course)
