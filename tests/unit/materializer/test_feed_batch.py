"""Records of a feed become batches that hold every event that is no replay, and nothing else."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.event import FeedEvent, decode_event
from tailrace.contracts.record import MAX_NUMBER, NotAChange
from tailrace.materializer.feeds.batch import FeedBatch, gather
from tailrace.materializer.feeds.partitions import Tended
from tailrace.materializer.records import RawRecord
from tailrace.store.layout.packed_events import PackedEvents, pack_events

SOURCES = [b"s:0", b"s:1", b"t:0"]
events = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b""]), st.sampled_from(SOURCES), st.integers(0, 9), st.booleans()),
    max_size=20,
)


def record(event: FeedEvent) -> RawRecord:
    headers: Any = event.headers()
    return (event.client, event.value, headers, event.offset)


def gathered(
    records: list[RawRecord], marks: dict[bytes, int], *, ordered: bool = True, stored: int = -1, most: int = 500
) -> list[FeedBatch]:
    return gather(records, stored, marks, ordered=ordered, most=most, largest=1000)


@given(events, st.dictionaries(st.sampled_from(SOURCES), st.integers(0, 9)), st.booleans(), st.integers(1, 7))
def test_a_batch_has_every_event_above_the_mark_of_its_source_in_order(
    written: list[tuple[bytes, bytes, int, bool]], marks: dict[bytes, int], ordered: bool, most: int
) -> None:
    records: list[RawRecord] = []
    expected: list[FeedEvent] = []
    held = dict(marks)
    for offset, (client, source, version, foreign) in enumerate(written):
        event = FeedEvent(client, b"%d" % offset, 1, version, offset, offset, source)
        records.append((client, b"", None, offset) if foreign else record(event))
        if not foreign and version > held.get(source, -1):
            expected.append(event)
            held.update({source: version} if ordered else {})
    batches = gathered(records, marks, ordered=ordered, most=most)
    assert marks == held, "what the store holds after the last batch"
    before = -1
    for batch in batches:
        own = [event for event in expected if before < event.offset <= batch.reached]
        assert batch.packed == pack_events(own, ordered=ordered)
        assert [n for n, _ in batch.refused] == [n for n in range(before + 1, batch.reached + 1) if written[n][3]]
        assert batch.records == batch.reached - before <= most
        before = batch.reached
    assert before == len(written) - 1


numbers = st.sampled_from(
    [b"0", b"7", b"07", b"", b"x", b"1e3", b"-1", b"%d" % MAX_NUMBER, b"%d" % (MAX_NUMBER + 1), None]
)
header_lists = st.one_of(
    st.none(),
    st.builds(
        lambda g, v, t, p, s: [("g", g), ("v", v), ("t", t), ("p", p), ("s", s)],
        numbers,
        numbers,
        numbers,
        numbers,
        st.sampled_from([None, b"", b"topic", b"s" * 41]),
    ),
    st.lists(st.tuples(st.sampled_from(["g", "v", "t", "p", "s", "z"]), st.one_of(st.none(), numbers)), max_size=7),
)


@given(st.sampled_from([None, b"", b"k"]), st.sampled_from([None, b"", b"{}"]), header_lists)
def test_headers_in_any_shape_are_read_as_decode_event_reads_them(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    expected, reason = PackedEvents(), None
    try:
        expected = pack_events([decode_event(key, value, headers, 3)])
    except NotAChange as error:
        reason = str(error)
    # The second record is of a source that was seen before.
    (first,) = gathered([(key, value, headers, 3)], {})
    plain = FeedEvent(b"k", b"{}", 7, 1, 7, 2, b"topic:7")
    (second,) = gathered([record(plain), (key, value, headers, 3)], {}, ordered=False)
    for batch in (first, second):
        assert [why for _, why in batch.refused] == ([reason] if reason is not None else [])
    assert first.packed == expected
    if reason is None:
        both = [plain, decode_event(key, value, headers, 3)]
        assert second.packed == pack_events(both, ordered=False)


def test_numbers_are_kept_as_the_store_spells_them() -> None:
    spelled = [b"1", b"01", b"0", b"8", b"000", b"%d" % MAX_NUMBER, b"0%d" % 10**17]
    plain = FeedEvent(b"k", b"{}", 1, 1, 1, 2, b"topic:7")
    for g, v, t in product(spelled, repeat=3):
        headers: Any = [("g", g), ("v", v), ("t", t), ("p", b"7"), ("s", b"topic")]
        # Of a source that was seen before, which is the short way.
        (batch,) = gathered([record(plain), (b"k", b"{}", headers, 3)], {}, ordered=False)
        assert batch.packed == pack_events([plain, decode_event(b"k", b"{}", headers, 3)], ordered=False)


def test_records_that_are_in_the_store_are_passed_over() -> None:
    records = [record(FeedEvent(b"a", b"{}", 1, n + 1, 1, n, b"s:0")) for n in range(5)]
    (batch,) = gathered(records, {}, stored=2)
    assert (batch.packed.count, batch.reached, batch.records) == (2, 4, 2)
    assert gathered(records, {}, stored=4) == []


def test_large_values_are_cut_into_batches_in_their_order() -> None:
    sizes = [300, 300, 500, 2000, 1, 1]
    records = [record(FeedEvent(b"a", b"x" * size, 1, n + 1, 1, n, b"s:0")) for n, size in enumerate(sizes)]
    assert [(batch.reached, batch.records) for batch in gathered(records, {})] == [(1, 2), (2, 1), (3, 1), (5, 2)]


def test_a_client_that_gets_events_is_tended_once_in_a_hundredth_of_the_age() -> None:
    tended = Tended()
    assert tended.due({b"a", b"b"}, 500.0, 0.0) == {b"a", b"b"}
    assert tended.due({b"b", b"c"}, 500.0, 4.9) == {b"c"}
    assert tended.due({b"b", b"c"}, 500.0, 5.0) == {b"b", b"c"}
    assert tended.due(set(), 500.0, 6.0) == set()
