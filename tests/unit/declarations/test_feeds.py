"""Feeds without I/O: their declarations, their records, and where they begin."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace import App
from tailrace.contracts.catalog import Catalog, CatalogFeed
from tailrace.contracts.event import FeedEvent, decode_event
from tailrace.contracts.record import NotAChange
from tailrace.materializer.feeds.start import beginning
from tailrace.pipeline.analysis.definitions import definition
from tailrace.pipeline.lifecycle.generations import starts_within
from tailrace.pipeline.source.reading import readings
from tailrace.pipeline.view.plan import ordered
from tailrace.store.read.feed_histories import Registration
from tailrace.store.write.feeds import REMEMBERED, Beginning

EVENT = FeedEvent(b"ann", b"{}", 2, 8, 1700, 41, b"0a1b:3")


def feed_of(**declared: Any) -> CatalogFeed:
    return CatalogFeed("f", "f", "id", 1, 1, (), (), {}, **declared)


def test_an_event_survives_being_written_and_read() -> None:
    assert decode_event(EVENT.client, EVENT.value, EVENT.headers(), EVENT.offset) == EVENT


@pytest.mark.parametrize(
    ("key", "value", "missing"), [(None, b"{}", ""), (b"ann", None, ""), (b"ann", b"{}", "p"), (b"ann", b"{}", "v")]
)
def test_a_record_that_lacks_what_an_event_has_is_refused(key: bytes | None, value: bytes | None, missing: str) -> None:
    headers = [header for header in EVENT.headers() if header[0] != missing]
    with pytest.raises(NotAChange, match="expected"):
        decode_event(key, value, headers, 0)


def test_an_event_that_was_too_long_is_refused_with_its_length() -> None:
    with pytest.raises(NotAChange, match=r"9000000 bytes.*max\.message\.bytes"):
        decode_event(b"ann", None, [*EVENT.headers(), ("o", b"9000000")], 0)


def test_events_of_one_record_have_identities_of_their_own_and_a_replay_has_the_same() -> None:
    others = [
        FeedEvent(b"bob", b"{}", 2, 8, 1700, 41, b"0a1b:3"),
        FeedEvent(b"an", b"n{}", 2, 8, 1700, 41, b"0a1b:3"),
        FeedEvent(b"ann", b"{1}", 2, 8, 1700, 41, b"0a1b:3"),
        FeedEvent(b"ann", b"{}", 2, 9, 1700, 41, b"0a1b:3"),
        FeedEvent(b"ann", b"{}", 2, 8, 1700, 41, b"0a1b:4"),
        FeedEvent(b"ann", b"{}", 2, 8, 1700, 41, b"0a1c:3"),
    ]
    assert len({EVENT.identity, *(other.identity for other in others)}) == 7
    assert FeedEvent(b"ann", b"{}", 3, 8, 1701, 99, b"0a1b:3").identity == EVENT.identity


def test_limits_of_a_feed_are_no_part_of_its_definition() -> None:
    app = App("movies")
    events = app.topic("ratings", value="movie_id long")
    one = app.feed("f", events, key="movie_id")
    two = app.feed("f", events, key="movie_id", hold="1 hour", retain="always", length=5, age="1 hour")
    assert definition(one, 2) == definition(two, 2)


def test_a_feed_is_ordered_where_each_record_goes_straight_to_its_event() -> None:
    app = App("movies")
    events = app.topic("ratings", value="movie_id long, id string")
    plain = app.feed("a", events.where("movie_id > 1").with_columns(n="movie_id"), key="movie_id")
    told = app.feed("b", events.dedupe(by="id"), key="movie_id")
    several = app.feed("c", events, key="movie_id", transform=lambda frame: frame)
    assert [ordered(feed, readings(feed, {})) for feed in (plain, told, several)] == [True, False, False]


def test_a_catalog_from_before_feeds_had_limits_is_read_and_takes_no_event_for_a_replay() -> None:
    catalog = json.loads(Catalog("movies", {}, {"f": feed_of(hold=3.0)}).encode())
    for name in ("length", "age", "ordered"):
        del catalog["feeds"]["f"][name]
    feed = Catalog.decode(json.dumps(catalog).encode()).feeds["f"]
    assert (feed.hold, feed.length, feed.age, feed.ordered) == (3.0, 10_000, 86_400.0, False)


def test_the_next_generation_begins_where_the_last_one_was_and_reads_new_partitions_whole() -> None:
    assert starts_within({}, {"ratings": 2}) == {}
    assert starts_within({"ratings": {"0": 7}, "other": {"0": 1}}, {"ratings": 2}) == {"ratings": {"0": 7, "1": -2}}


@pytest.mark.parametrize(
    ("feed", "held", "expected"),
    [
        (feed_of(retain="always"), 90_000, Beginning(100, 100, 99, 99_999)),
        (feed_of(ordered=True), 90_000, Beginning(100, 80_000, 89_999, 99_999, 5.0)),
        (feed_of(ordered=False), 90_000, Beginning(100, 90_000 - REMEMBERED, 89_999, 99_999, 5.0)),
        # Nothing to be had: nobody is waited for.
        (feed_of(ordered=True), 100_000, Beginning(100, 90_000, 99_999, 99_999, 0.0)),
        (feed_of(ordered=True), 0, Beginning(100, 100, 99, 99_999, 5.0)),
    ],
)
def test_a_feed_begins_with_the_hold_time_and_reads_what_is_before_it_for_replays(
    feed: CatalogFeed, held: int, expected: Beginning
) -> None:
    assert beginning(feed, 100, 100_000, held, 5.0) == expected


@pytest.mark.parametrize(("after", "covered"), [(3, False), (4, True), (9, True), (12, True), (13, False)])
def test_a_position_is_covered_by_a_history_that_begins_before_and_a_changelog_that_reaches_it(
    after: int, covered: bool
) -> None:
    restoring = Registration(expires=0, offset=9, target=12, start=4, generation=1)
    assert restoring.covers(after) is covered and not restoring.whole
    assert not Registration(expires=0).covers(after)
