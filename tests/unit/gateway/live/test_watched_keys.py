"""Followed keys: one encoding for all, slow clients conflated, nobody held up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway_model import Parts, messages
from tailrace.contracts.catalog import Column
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.live.keys.subscription import KeySubscription
from tailrace.gateway.live.keys.watched import WatchedKey
from tailrace.gateway.live.positions import After, Fresh, Reset
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.reader import KeyRead

KEY = b"362"
VIEW = ServedView("averages", "0123abcd", 1, 1, (Column("movie_id", "bigint"),))


def row(version: int, offset: int | None = None, value: bytes | None = b"") -> StoredRow:
    shown = b'{"version":%d}' % version if value == b"" else value
    return StoredRow(1, version, version * 10 if offset is None else offset, 0, shown)


def held(found: StoredRow | None = None, offset: int = 100, target: int = -1) -> KeyRead:
    return KeyRead(found, offset, True, target)


class Client:
    """A connection that keeps what is written to it; one of `room` writes reports itself as full."""

    def __init__(self, parts: Parts, framing: Framing) -> None:
        self.written: list[bytes] = []
        self.room: int | None = None
        self.wire = Wire(self._write, self.written.clear, framing)
        self.subscription = KeySubscription(parts.keys, self.wire, VIEW, [KEY], id="a")
        self.wire.stream = self.subscription
        self.follower = parts.keys.attach(VIEW, KEY, self.subscription)

    def enter(self, entry: Fresh | After | Reset, read: KeyRead) -> None:
        """Come in, with what a read has found."""
        self.subscription._followers[KEY] = self.follower
        self.subscription._enter([self.follower], {KEY: read}, entry if isinstance(entry, Reset) else {KEY: entry})

    def _write(self, data: bytes) -> None:
        self.written.append(data)
        if self.room is not None:
            self.room -= 1
            if self.room == 0:
                self.wire.pause_writing()

    def events(self) -> list[str]:
        """What has come: each row as its version, each other frame as its event."""
        found = []
        if self.wire.framing is Framing.SOCKET:
            told = messages(b"".join(self.written))
            return [str(one["row"]["version"]) if one["type"] == "row" else one["type"] for one in told]
        body = b"".join(
            self.written if self.wire.framing is not Framing.CHUNKED else map(_unchunked, self.written)
        ).decode()
        for block in body.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            found.append(fields["data"][11:-1] if fields["event"] == "row" else fields["event"])
        return found


def _unchunked(data: bytes) -> bytes:
    size, _, rest = data.partition(b"\r\n")
    assert rest.endswith(b"\r\n") and len(rest) == int(size, 16) + 2, "one write is one whole chunk"
    return rest[:-2]


class Bench:
    """A followed key with its metrics, settled on a row or on nothing."""

    def __init__(self, found: StoredRow | None = None) -> None:
        self.parts = Parts(VIEW)
        self.metrics = self.parts.metrics
        self.followed: WatchedKey = Client(self.parts, Framing.PLAIN).follower.followed
        self.followed.learn(held(found))

    def client(
        self,
        entry: Fresh | After | Reset | None = None,
        read: KeyRead | None = None,
        framing: Framing = Framing.CHUNKED,
    ) -> Client:
        client = Client(self.parts, framing)
        client.enter(entry or Fresh(), read or held())
        return client

    def change(self, *versions: int) -> None:
        for version in versions:
            self.followed.offer(row(version))
        self.followed.flush()

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_a_client_gets_row_ready_and_then_changes() -> None:
    bench = Bench(row(5))
    client = bench.client()
    bench.change(6)
    assert client.events() == ["5", "ready", "6"]


@in_loop
async def test_changes_of_one_tick_are_one_write_shared_by_all() -> None:
    bench = Bench(row(5))
    first, second = bench.client(), bench.client()
    bench.change(6, 7, 8)
    assert len(first.written) == 2 and first.written[1] is second.written[1]
    assert first.events() == ["5", "ready", "6", "7", "8"]


@in_loop
async def test_replayed_versions_reach_nobody() -> None:
    bench = Bench(row(5))
    client = bench.client()
    bench.change(4, 6, 5, 6)
    assert client.events() == ["5", "ready", "6"]


@in_loop
async def test_who_comes_in_between_two_changes_of_a_tick_gets_each_version_once() -> None:
    bench = Bench(row(5))
    first = bench.client()
    bench.followed.offer(row(6))
    second = bench.client()
    bench.change(7)
    assert first.events() == ["5", "ready", "6", "7"]
    assert second.events() == ["6", "ready", "7"]


@in_loop
async def test_a_slow_client_gets_only_the_newest_when_it_reads_again() -> None:
    bench = Bench(row(1))
    slow, fast = bench.client(), bench.client()
    slow.wire.pause_writing()
    for version in range(2, 12):
        bench.change(version)
    assert slow.events() == ["1", "ready"]
    assert fast.events() == ["1", "ready", *map(str, range(2, 12))]
    slow.wire.resume_writing()
    bench.change(12)
    assert slow.events() == ["1", "ready", "11", "12"]
    assert bench.sample("tailrace_gateway_conflated_total") == 9


@in_loop
async def test_a_client_found_slow_by_a_write_keeps_what_was_written_and_misses_nothing() -> None:
    bench = Bench(row(1))
    slow, fast = bench.client(), bench.client()
    slow.room = 1
    bench.change(2)
    bench.change(3)
    slow.room = None
    slow.wire.resume_writing()
    assert slow.events() == fast.events() == ["1", "ready", "2", "3"]


@in_loop
async def test_a_slow_client_that_missed_nothing_gets_nothing_twice() -> None:
    bench = Bench(row(1))
    client = bench.client()
    client.wire.pause_writing()
    client.wire.resume_writing()
    assert client.events() == ["1", "ready"]


@in_loop
async def test_a_change_that_waits_for_the_flush_is_not_written_twice_to_who_resumes() -> None:
    bench = Bench(row(1))
    slow, fast = bench.client(), bench.client()
    slow.wire.pause_writing()
    bench.followed.offer(row(2))
    slow.wire.resume_writing()
    bench.followed.flush()
    assert slow.events() == fast.events() == ["1", "ready", "2"]


@in_loop
async def test_a_client_that_has_left_is_written_nothing() -> None:
    bench = Bench(row(1))
    gone, there = bench.client(), bench.client()
    gone.wire.lose()
    bench.change(2)
    assert gone.events() == ["1", "ready"] and there.events()[-1] == "2"
    bench.change(3)
    assert gone.events() == ["1", "ready"]


@in_loop
async def test_a_resume_gives_only_what_is_newer_than_the_position() -> None:
    bench = Bench(row(5, offset=50))
    assert bench.client(After(49)).events() == ["5", "ready"]
    assert bench.client(After(50)).events() == ["ready"]
    assert bench.client(After(70)).events() == ["ready"]


@in_loop
async def test_a_resume_learns_that_the_row_is_gone() -> None:
    bench = Bench(row(5, offset=50, value=None))
    assert bench.client(After(49)).events() == ["gone", "ready"]
    assert bench.client(After(50)).events() == ["ready"]
    assert bench.client(Fresh()).events() == ["ready"]


@in_loop
async def test_a_position_from_before_a_restore_learns_of_a_row_whose_tombstone_is_lost() -> None:
    bench = Bench()
    restored = held(None, offset=100, target=80)
    assert bench.client(After(79), restored).events() == ["gone", "ready"]
    assert bench.client(After(80), restored).events() == ["ready"]


@in_loop
async def test_a_reset_comes_before_the_snapshot() -> None:
    bench = Bench(row(5))
    assert bench.client(Reset("foreign", "…")).events() == ["reset", "5", "ready"]
    assert bench.sample("tailrace_gateway_resets_total", reason="foreign") == 1


@in_loop
async def test_an_http_1_0_client_gets_no_chunks() -> None:
    bench = Bench(row(5))
    plain, chunked = bench.client(framing=Framing.PLAIN), bench.client()
    bench.change(6, 7)
    assert plain.events() == chunked.events() == ["5", "ready", "6", "7"]


@in_loop
async def test_a_web_socket_gets_the_same_frames_encoded_once_for_all() -> None:
    bench = Bench(row(5))
    first, second, other = bench.client(framing=Framing.SOCKET), bench.client(framing=Framing.SOCKET), bench.client()
    bench.change(6, 7)
    bench.followed.offer(row(8, value=None))
    bench.followed.flush()
    assert first.events() == second.events() == other.events() == ["5", "ready", "6", "7", "gone"]
    assert first.written[-1] is second.written[-1]
    assert bench.sample("tailrace_gateway_frames_total", kind="row", surface="ws") == 6
    assert bench.sample("tailrace_gateway_frames_total", kind="gone", surface="ws") == 2


@in_loop
async def test_a_surface_without_followers_is_not_encoded() -> None:
    bench = Bench(row(5))
    client = bench.client()
    bench.followed.offer(row(6))
    (frame,) = bench.followed._waiting
    bench.followed.flush()
    assert frame.message is None and client.events()[-1] == "6"


@in_loop
async def test_a_web_socket_that_follows_a_key_twice_gets_its_changes_once() -> None:
    bench = Bench(row(5))
    client = bench.client(framing=Framing.SOCKET)
    twin = Client(bench.parts, Framing.SOCKET)
    twin.subscription.wire = twin.follower.wire = client.wire
    twin.enter(After(100), held())
    bench.change(6)
    assert client.events() == ["5", "ready", "ready", "6"]
    twin.subscription.close()
    bench.change(7)
    assert client.events()[-1] == "7"


@in_loop
async def test_what_a_read_finds_beyond_pub_sub_is_told() -> None:
    bench = Bench(row(5))
    client = bench.client()
    assert bench.followed.learn(held(row(7)))
    bench.followed.flush()
    bench.change(6, 7)
    assert bench.followed.learn(held(None, offset=200))
    bench.followed.flush()
    assert client.events() == ["5", "ready", "7", "gone"]


@in_loop
async def test_frames_and_bytes_are_counted_once_per_receiver() -> None:
    bench = Bench(row(5))
    clients = [bench.client(), bench.client()]
    before = bench.sample("tailrace_gateway_bytes_total", kind="row", surface="sse")
    bench.change(6)
    assert bench.sample("tailrace_gateway_frames_total", kind="row", surface="sse") == 4
    sent = sum(len(_unchunked(client.written[-1])) for client in clients)
    assert bench.sample("tailrace_gateway_bytes_total", kind="row", surface="sse") - before == sent


actions = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 40)),
        st.tuples(st.just("flush")),
        st.tuples(st.just("pause"), st.integers(0, 2)),
        st.tuples(st.just("resume"), st.integers(0, 2)),
        st.tuples(st.just("full"), st.integers(0, 2)),
        st.tuples(st.just("enter")),
    ),
    max_size=60,
)


@given(actions)
def test_each_client_sees_rising_versions_and_in_the_end_the_newest(script: list[tuple[object, ...]]) -> None:
    async def play() -> None:
        bench = Bench(row(1))
        clients = [bench.client(), bench.client(framing=Framing.PLAIN), bench.client(framing=Framing.SOCKET)]
        newest = 1
        for name, *arguments in script:
            if name == "offer":
                assert isinstance(arguments[0], int)
                newest = max(newest, arguments[0])
                bench.followed.offer(row(arguments[0]))
            elif name == "flush":
                bench.followed.flush()
            elif name == "enter":
                clients.append(bench.client())
            else:
                assert isinstance(arguments[0], int)
                client = clients[arguments[0]]
                if name == "full":
                    client.room = 1
                elif name == "pause" and not client.wire.paused:
                    client.wire.pause_writing()
                elif name == "resume" and client.wire.paused:
                    client.room = None
                    client.wire.resume_writing()
        for client in clients:
            client.room = None
            if client.wire.paused:
                client.wire.resume_writing()
        bench.followed.flush()
        for client in clients:
            versions = [int(event) for event in client.events() if event != "ready"]
            assert versions == sorted(set(versions)) and versions[-1] == newest

    asyncio.run(play())


@in_loop
async def test_rows_of_another_build_reach_nobody() -> None:
    bench = Bench(row(5))
    client = bench.client()
    for generation in (0, 2):
        assert not bench.followed.offer(StoredRow(generation, 99, 990, 0, b"{}"))
        other = KeyRead(StoredRow(generation, 99, 990, 0, b"{}"), 1000, True, -1, generation)
        assert not bench.followed.serves(other) and not bench.followed.learn(other)
        assert not bench.followed.learn(KeyRead(None, 1000, True, -1, generation))
    bench.change(6)
    assert client.events() == ["5", "ready", "6"]
