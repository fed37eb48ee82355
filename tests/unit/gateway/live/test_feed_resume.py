"""Where a client of a feed comes in, and how its events look on each surface."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace.contracts.catalog import CatalogFeed, Column
from tailrace.gateway.catalog import ServedFeed
from tailrace.gateway.frames.surface import SSE, WS
from tailrace.gateway.live.feeds.position import feed_entry
from tailrace.gateway.live.feeds.state import Check, FeedState
from tailrace.gateway.live.feeds.watched import WatchedFeed, page_size
from tailrace.gateway.live.positions import After, Ahead, Fresh, Reset
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.feed_histories import PAGE, Registration

ENTRY = CatalogFeed(
    "notices", "notices", "id", 1, 2, (Column("client", "string"),), (), {}, hold=30.0, length=5, age=60.0
)
FEED = ServedFeed(ENTRY, "0123abcd")
ALWAYS = ServedFeed(replace(ENTRY, retain="always"), "0123abcd")


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (None, Fresh()),
        ("", Fresh()),
        ("0123abcd.2.0-10", After(10)),
        ("0123abcd.2.0-20", After(20)),
        ("0123abcd.1.0-15", After(15)),
        ("0123abcd.9.0-15", After(15)),
        ("0123abcd.2.0-21", Ahead(21)),
    ],
)
def test_a_position_is_worth_its_offset_whatever_its_generation(
    position: str | None, expected: Fresh | After | Ahead
) -> None:
    assert feed_entry(position, FEED, 0, Registration(0, 20, 20, 10, 2, 12)) == expected


@pytest.mark.parametrize(
    ("position", "feed", "start", "reason", "why"),
    [
        ("what", FEED, 10, "unreadable", "the id of an earlier frame"),
        ("ffffffff.2.0-10", FEED, 10, "foreign", "another feed"),
        ("0123abcd.2.0-9", FEED, 10, "missed", "at most 5 for one client, none older than 60 s"),
        ("0123abcd.2.0-9", FEED, 20, "missed", "longer than the hold time, 30 s"),
        ("0123abcd.2.0-9", ALWAYS, 20, "missed", "at most 5 for one client"),
        ("0123abcd.2", FEED, 10, "missed", "events are kept from 11 on only"),
        ("0123abcd.2.1-15", FEED, 10, "missed", "before the feed had 1 partitions"),
    ],
)
def test_who_can_not_be_given_everything_is_told_why(
    position: str, feed: ServedFeed, start: int, reason: str, why: str
) -> None:
    found = feed_entry(position, feed, 0, Registration(0, 20, 20, start, 2, start))
    assert isinstance(found, Reset) and found.reason == reason and why in found.message


def test_who_has_seen_nothing_of_an_empty_feed_has_missed_nothing() -> None:
    assert feed_entry("0123abcd.2", FEED, 0, Registration(0, -1, -1, -1, 2, -1)) == After(-1)


@pytest.mark.parametrize(
    ("front", "listener", "expected", "after"),
    [
        (10, Registration(0, 30, 20, 5, 1, 10), Check.FINE, 30),
        (10, Registration(0, 30, 20, 5, 1, 12), Check.GAP, 10),
        (10, Registration(0, 30, 20, 11, 1, 11), Check.MISSED, 10),
        (10, Registration(0, 9, 9, 5, 1, 9), Check.LOST, 10),
        (10, Registration(0, 19, 20, 5, 1, 9), Check.WAIT, 10),
        (10, Registration(0), Check.WAIT, 10),
        (None, Registration(0, 9, 9, 5, 1, 9), Check.FINE, None),
    ],
)
def test_a_look_at_the_registration_says_what_is_missing(
    front: int | None, listener: Registration, expected: Check, after: int | None
) -> None:
    standing = FeedState()
    standing.front = front
    assert standing.check(front, listener) is expected
    assert standing.front == after and standing.gap == (expected is Check.GAP)


def watched(client: bytes) -> WatchedFeed:
    nothing: Any = None
    return WatchedFeed(FEED, client, b"channel", nothing, nothing, nothing, nothing, nothing)


def test_an_event_names_its_feed_and_client_and_is_put_in_as_it_is() -> None:
    client = 'c "7" ü'
    feed = watched(client.encode())
    row = StoredRow(2, 9, 13, 0, '{"text": "ü"}'.encode())
    partition = FEED.partition(client.encode())
    position = f"0123abcd.2.{partition}-13"
    sse = SSE.encode(feed.frame(row)).decode()
    assert sse == f'event: event\nid: {position}\ndata: {{"text": "ü"}}\n\n'
    message = WS.encode(feed.frame(row))
    assert message[0] == 0x81 and message[1] == len(message) - 2
    expected = {"type": "event", "feed": "notices", "client": client, "position": position, "event": {"text": "ü"}}
    assert json.loads(message[2:]) == expected and b'{"text": "\xc3\xbc"}' in message
    assert str(feed.position(-1)) == "0123abcd.2" and str(feed.position(13)) == position


def test_bytes_that_would_break_a_frame_do_not() -> None:
    feed = watched(b"c7")
    assert SSE.encode(feed.frame(StoredRow(1, 1, 0, 0, b'{\r\n"n":1}'))).count(b"\ndata: ") == 2
    WS.encode(feed.frame(StoredRow(1, 1, 0, 0, b'"\xff"')))[2:].decode()


def test_pages_are_of_so_many_bytes() -> None:
    small, large = StoredRow(1, 1, 0, 0, b"{}"), StoredRow(1, 1, 0, 0, b"x" * 1_000_000)
    assert page_size([small]) == PAGE and page_size([large]) == 1
    assert 100 < page_size([StoredRow(1, 1, 0, 0, b"x" * 1000)]) < PAGE
