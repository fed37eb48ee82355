"""The gateway's smaller parts: paths, entity tags, the catalog, joined reads, the hub's channels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.catalog import Catalog, CatalogView, Column, ViewProgress
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.connection.close_reasons import SHUTDOWN
from tailrace.gateway.connection.connections import Connections
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.http.lookup import etag, matches
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.keys.reads import Reads
from tailrace.gateway.live.keys.registry import KeyRegistry
from tailrace.gateway.live.tick import Tick
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.paths import decoded
from tailrace.gateway.problems import Problem
from tailrace.gateway.timing import Timing
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.reader import KeyRead

KEY = (Column("movie_id", "bigint"),)
VIEW = ServedView("averages", "0123abcd", 1, 1, KEY)


@given(st.text())
def test_every_text_can_be_a_key_in_a_path(key: str) -> None:
    assert decoded(quote(key, safe=""), "key") == key


@pytest.mark.parametrize("segment", ["%ff", "%C3", "%", "%2", "%zz", "a%", "%ed%a0%80"])
def test_what_is_not_utf_8_is_refused_and_said(segment: str) -> None:
    with pytest.raises(Problem) as refused:
        decoded(segment, "key")
    assert refused.value.status == 400 and refused.value.body["got"] == segment


@pytest.mark.parametrize(
    "header",
    ['"0123abcd.1.0-5"', 'W/"0123abcd.1.0-5"', '"x", "0123abcd.1.0-5"', 'W/"x",W/"0123abcd.1.0-5"', "*", " * "],
)
def test_an_entity_tag_is_found_in_every_form_of_the_header(header: str) -> None:
    assert matches(header, etag(VIEW, 0, StoredRow(1, 9, 5, 0, b"{}")))


@pytest.mark.parametrize("header", [None, "", '"0123abcd.1.0-6"', "0123abcd.1.0-5", '"0123abcd.1.0-55"', '""'])
def test_another_entity_tag_does_not_match(header: str | None) -> None:
    assert not matches(header, etag(VIEW, 0, StoredRow(1, 9, 5, 0, b"{}")))


def records(*, generation: int = 1, topic_id: str = "t", views: Sequence[str] = ("averages",)) -> dict[str, bytes]:
    catalog = Catalog(
        "movies", {name: CatalogView(name, name, topic_id, 2, generation, KEY, KEY, {}) for name in views}
    )
    return {"app": catalog.encode(), "progress/averages": ViewProgress("averages", 1, 0, 5, {"bad": 2}).encode()}


def test_the_catalog_tells_which_views_were_rebuilt_or_removed() -> None:
    known = ServedCatalog()
    assert [known.load({}), known.loaded] == [set(), False]
    assert [known.load(records()), known.loaded] == [set(), True]
    assert known.load(records()) == set()
    assert known.load(records(generation=2)) == {"averages"}
    assert known.load(records(generation=2, topic_id="other")) == {"averages"}
    assert known.load(records(generation=2, topic_id="other", views=("averages", "more"))) == set()
    assert known.load(records(generation=2, topic_id="other", views=("more",))) == {"averages"}


def test_an_emptied_or_unreadable_catalog_changes_nothing() -> None:
    known = ServedCatalog()
    known.load(records())
    for broken in ({}, {"app": b"{"}, {"app": b'{"format":99}'}, {"app": b"[]"}):
        assert known.load(broken) == set()
        assert known.loaded and set(known.views) == {"averages"} and known.progress["averages"].inputs == 5
    assert known.problem is not None
    known.load(records())
    assert known.problem is None


class Slow:
    """A source that answers when told to."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def held(self, view: str, partition: int, lineage: str, keys: Sequence[bytes]) -> list[KeyRead]:
        assert (view, partition, lineage) == (VIEW.name, 0, VIEW.lineage)
        self.asked.append(list(keys))
        if (error := await self.answers.get()) is not None:
            raise error
        return [KeyRead(StoredRow(1, 1, 1, 0, key), 1, True) for key in keys]


def test_reads_that_come_while_one_is_under_way_are_made_together() -> None:
    async def play() -> None:
        source = Slow()
        reads = Reads(source)
        tasks = [asyncio.create_task(reads.held(VIEW, b"0"))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(reads.held(VIEW, key)) for key in (b"0", b"1", b"2", b"1")]
        await asyncio.sleep(0)
        tasks.pop().cancel()
        for _ in range(2):
            source.answers.put_nowait(None)
        found = await asyncio.gather(*tasks)
        assert [held.row.value for held in found if held.row] == [b"0", b"0", b"1", b"2"]
        assert source.asked == [[b"0"], [b"0", b"1", b"2"]], "a read begins after it was asked for"

    asyncio.run(play())


def test_a_failed_read_is_told_to_all_who_asked_and_to_nobody_else() -> None:
    async def play() -> None:
        source = Slow()
        reads = Reads(source)
        first = asyncio.create_task(reads.held(VIEW, b"0"))
        source.answers.put_nowait(OSError("away"))
        with pytest.raises(OSError, match="away"):
            await first
        source.answers.put_nowait(None)
        assert (await reads.held(VIEW, b"0")).whole

    asyncio.run(play())


class Watching:
    """A subscription that does nothing."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def rebuild(self) -> None:
        pass

    def start(self) -> None:
        pass


class Link:
    """Keeps which channels are wanted."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.up = True

    def join(self, channel: bytes) -> None:
        self.log.append(f"+{channel.decode()}")

    def leave(self, channel: bytes) -> None:
        self.log.append(f"-{channel.decode()}")

    async def joined(self, channel: bytes) -> None: ...


def registry(link: Link) -> tuple[ChannelRegistry, KeyRegistry]:
    known = ServedCatalog()
    metrics = Metrics(known)
    channels = ChannelRegistry(link, metrics)

    def channel(view: str, partition: int, _: str, key: bytes) -> bytes:
        return b"%b/%d/%b" % (view.encode(), partition, key)

    return channels, KeyRegistry(channels, channel, Tick(metrics), Reads(Slow()), known, metrics, Timing())


def test_the_hub_joins_a_channel_with_the_first_follower_and_leaves_with_the_last() -> None:
    async def play() -> None:
        link = Link()
        _, hub = registry(link)
        clients = [Watching(Wire(lambda _: None, lambda: None, Framing.CHUNKED)) for _ in range(3)]
        first, second = hub.attach(VIEW, b"1", clients[0]), hub.attach(VIEW, b"1", clients[1])
        other = hub.attach(VIEW, b"2", clients[2])
        assert link.log == ["+averages/0/1", "+averages/0/2"]
        hub.detach(first)
        hub.detach(first)
        hub.detach(other)
        assert link.log[2:] == ["-averages/0/2"]
        hub.detach(second)
        assert link.log[3:] == ["-averages/0/1"] and not list(hub.followed())

    asyncio.run(play())


def test_a_message_that_is_not_a_row_is_dropped_and_the_next_one_delivered() -> None:
    async def play() -> None:
        channels, hub = registry(Link())
        written: list[bytes] = []
        follower = hub.attach(VIEW, b"1", Watching(Wire(written.append, lambda: None, Framing.CHUNKED)))
        followed = follower.followed
        followed.learn(KeyRead(None, 0, True))
        for data in (b"", b"nonsense", b"1 2", b"a b c d e"):
            channels.deliver(b"averages/0/1", data)
        channels.deliver(b"unknown", b"nonsense")
        assert not followed.progress.sure, "what was dropped may have been a row"
        channels.deliver(b"averages/0/1", b'1 1 1 0 {"a":1}')
        assert followed.state.present

    asyncio.run(play())


def test_who_reads_slowly_is_not_stuck_and_who_reads_nothing_is() -> None:
    async def play() -> None:
        left = 1000
        wire = Wire(lambda _: None, lambda: None, Framing.SOCKET, pending=lambda: left)
        assert wire.stuck(0) == wire.stuck(99) == 0
        wire.pause_writing()
        assert wire.stuck(100) == 0 and wire.stuck(130) == 30
        left = 900
        assert wire.stuck(131) == 0 and wire.stuck(150) == 19
        wire.resume_writing()
        assert wire.stuck(999) == 0
        wire.pause_writing()
        assert wire.stuck(1000) == 0

    asyncio.run(play())


def test_a_drain_ends_every_connection_in_batches_and_says_why() -> None:
    async def play() -> None:
        metrics = Metrics(ServedCatalog())
        hub = Connections(metrics, Timing(), Tick(metrics).flush)
        wires = [Wire(lambda _: None, lambda: None, Framing.CHUNKED) for _ in range(450)]
        for wire in wires:
            hub.open(wire)
        drain = asyncio.create_task(hub.drain(grace=0.5))
        seen = set()
        while not all(wire.closed.done() for wire in wires):
            await asyncio.sleep(0)
            seen.add(sum(wire.closed.done() for wire in wires))
        assert len(seen - {0}) == 5, "a hundred at a time"
        assert {wire.ending for wire in wires} == {SHUTDOWN}
        late = Wire(lambda _: None, lambda: None, Framing.SOCKET)
        hub.open(late)
        assert late.ending == SHUTDOWN
        for wire in (*wires, late):
            hub.close(wire)
        await drain

    asyncio.run(play())
