"""The parts of followed queries: entries, recent updates, texts of clients, bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway_model import messages
from tailrace.access.limits import Limits
from tailrace.contracts.catalog import Column
from tailrace.contracts.commands import Stream
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.connection.fanout import Fanout
from tailrace.gateway.connection.wire import Framing, Wire
from tailrace.gateway.frames.frame import About, Frame, place
from tailrace.gateway.frames.surface import SSE, WS
from tailrace.gateway.http.streams import Changes, changed
from tailrace.gateway.live.positions import Fresh, Later, Reset, Since
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.queries.position import query_entry
from tailrace.gateway.live.queries.recent import Recent, Update
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import Problem

VIEW = ServedView("v", "4be1a27c", 2, 2, (Column("k", "bigint"),), (Column("k", "bigint"), Column("s", "string")))
ABOUT = About({"view": "v", "query": "5f0e61c2a9d3b417"}, VIEW)


def frame(key: bytes, value: bytes | None, partition: int = 0, offset: int | None = None) -> Frame:
    position = None if offset is None else place(VIEW.lineage, VIEW.generation, partition, offset)
    return Frame(ABOUT, key, value, position)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Fresh()),
        ("", Fresh()),
        ("4be1a27c.2.0-7.1-9", Since({0: 7, 1: 9})),
        ("4be1a27c.2.1-9", Since({0: -1, 1: 9})),
        ("4be1a27c.2", Since({0: -1, 1: -1})),
        ("4be1a27c.3.0-7", Later(3)),
    ],
)
def test_a_position_says_for_every_partition_what_was_seen(text: str | None, expected: object) -> None:
    assert query_entry(text, VIEW) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("what", "unreadable"),
        ("00000000.2.0-7", "foreign"),
        ("4be1a27c.2.7-1", "foreign"),
        ("4be1a27c.1.0-7", "generation"),
        ("4be1a27c.0", "query"),
    ],
)
def test_a_position_that_can_not_be_used_is_reset_with_the_reason(text: str, reason: str) -> None:
    entry = query_entry(text, VIEW)
    assert isinstance(entry, Reset) and entry.reason == reason


def test_frames_of_both_surfaces_say_the_same() -> None:
    assert SSE.bare(frame(b"7", b'{"k":7}')) == b'event: row\ndata: {"k":7}\n\n'
    assert SSE.bare(frame(b"7", b'{\n"k":7}')) == b'event: row\ndata: {\ndata: "k":7}\n\n'
    assert SSE.bare(frame(b"7", None)) == b'event: gone\ndata: {"k":7}\n\n'
    assert SSE.together([frame(b"7", None)], b"4be1a27c.2.0-3.1-9") == (
        b'event: gone\ndata: {"k":7}\nid: 4be1a27c.2.0-3.1-9\n\n'
    )
    assert WS.encode(frame(b"7", b'{"k":7}', 1, 9))[2:] == (
        b'{"type":"row","view":"v","query":"5f0e61c2a9d3b417","key":"7","position":"4be1a27c.2.1-9","row":{"k":7}}'
    )
    assert WS.encode(frame(b"7", None, 1))[2:] == (b'{"type":"gone","view":"v","query":"5f0e61c2a9d3b417","key":"7"}')


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xc3"])
def test_what_is_not_utf_8_does_not_end_the_connection_of_who_follows_a_query(bad: bytes) -> None:
    text = bad.decode(errors="replace")
    (found,) = messages(WS.encode(frame(b"k" + bad, b'{"s":"%b"}' % bad, 1, 9)))
    assert (found["key"], found["row"]) == ("k" + text, {"s": text})
    (gone,) = messages(WS.encode(frame(b"k" + bad, None, 1, 9)))
    assert gone["key"] == "k" + text
    # Who reads Server-Sent Events replaces bytes of a row; the key is made JSON here.
    assert SSE.bare(frame(b"k" + bad, None)) == f'event: gone\ndata: {{"k":"k{text}"}}\n\n'.encode()


def update(seq: int, key: bytes) -> Update:
    return Update(ABOUT, seq, key, b"{}", None)


def test_recent_updates_are_the_newest_of_each_key_in_order_and_the_oldest_are_forgotten() -> None:
    recent = Recent(3 * update(0, b"a").size)
    for seq, key in enumerate((b"a", b"b", b"a", b"c"), start=1):
        recent.put(update(seq, key))
    assert [(one.seq, one.key) for one in recent.since(0)] == [(2, b"b"), (3, b"a"), (4, b"c")]
    assert [one.seq for one in recent.since(3)] == [4] and recent.has(b"a", 2) and not recent.has(b"b", 2)
    assert recent.knows(0)
    recent.put(update(5, b"d"))
    assert recent.knows(2) and not recent.knows(1) and len(recent) == 3
    recent.clear(5)
    assert recent.bytes == 0 and recent.since(0) == [] and recent.knows(5) and not recent.knows(4)


def parsed(where: str | None, filter: str | None = None) -> tuple[str, str]:
    predicates = Predicates()
    text, predicate = asyncio.run(predicates.parse(where, VIEW.columns))
    if filter is not None:
        predicate = predicates.both(predicate, predicates.known(filter, VIEW.columns), VIEW.columns)
        text = predicate.text
    return text, predicate.text


def test_a_filter_of_rights_is_added_to_every_query() -> None:
    assert parsed(None)[0] == "true"
    assert parsed("k = 1 or k = 2", "s = 'me'")[1] == parsed("s = 'me' and (k = 2 or k = 1)")[1]
    assert parsed(None, "s = 'me'")[1] == parsed("s = 'me'")[1]


@pytest.mark.parametrize("where", ["k = 1) or (true", "true or true) --", "k = 1 or", ")", "", "nothing = 1", "'"])
def test_a_query_can_not_reach_out_of_its_filter(where: str) -> None:
    with pytest.raises(Problem) as problem:
        parsed(where, "s = 'me'")
    assert problem.value.status == 400 and {"expected", "got", "remedy"} <= problem.value.body.keys()


def test_long_queries_are_refused_with_their_limits() -> None:
    with pytest.raises(Problem) as problem:
        parsed("k = 1 or " * 4000 + "k = 1")
    assert problem.value.status == 400


def test_keys_are_added_to_and_removed_from_a_stream_of_keys_alone() -> None:
    stream = Stream("s-1", "v", ("a", "b"), None, True, 0)
    assert changed(stream, Changes(add=["c", "a"], remove=["b", "x"]), Limits()).keys == ("a", "c")
    assert changed(stream, Changes(add=["c"], remove=["c"]), Limits()).keys == ("a", "b")
    assert changed(stream, Changes(remove=["a", "b"]), Limits()).keys == ()
    for other in (replace(stream, keys=None), replace(stream, keys=None, where="k = 1")):
        with pytest.raises(Problem):
            changed(other, Changes(add=["a"]), Limits())


def test_a_stream_gets_no_more_keys_than_a_subscription_may_have_and_may_always_lose_some() -> None:
    stream, limits = Stream("s-1", "v", ("a", "b", "c"), None, True, 0), Limits(keys=2)
    with pytest.raises(Problem) as problem:
        changed(stream, Changes(add=["d"]), limits)
    assert (problem.value.status, problem.value.body["error"], problem.value.body["got"]) == (413, "too many keys", "4")
    assert changed(stream, Changes(remove=["a"]), Limits(keys=1)).keys == ("b", "c")
    assert changed(stream, Changes(add=["d"], remove=["a"]), limits).keys == ("b", "c", "d"), "no more than before"


class Receiving:
    """A receiver on a wire that takes everything."""

    def __init__(self, framing: Framing) -> None:
        self.wire = Wire(lambda _: None, lambda: None, framing)


@pytest.mark.parametrize("values", [(b"{}", b"{}"), (b"{}", None), (None,)], ids=["rows", "both", "gone"])
def test_bytes_are_counted_without_the_position_of_all_frames(values: tuple[bytes | None, ...]) -> None:
    async def play() -> None:
        metrics = Metrics(ServedCatalog())
        fanout = Fanout(metrics)
        for framing in (Framing.CHUNKED, Framing.PLAIN, Framing.SOCKET):
            fanout.include(Receiving(framing))
        frames = [frame(b"%d" % n, value, offset=n) for n, value in enumerate(values)]
        fanout.write(frames, b"4be1a27c.2.0-9")
        for kind in ("row", "gone"):
            for surface, receivers in ((SSE, 2), (WS, 1)):
                expected = receivers * sum(len(surface.bare(one)) for one in frames if one.kind == kind)
                labels = {"kind": kind, "surface": surface.name}
                assert metrics.registry.get_sample_value("tailrace_gateway_bytes_total", labels) == expected

    asyncio.run(play())
