"""The checker of changelogs finds every anomaly that is put into a good one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker import Change, feed_violations, repeats, violations


def change(key: str, version: int, offset: int, **row: Any) -> Change:
    value = json.dumps({"k": key, **row}).encode() if row else None
    return Change(key, value, 1, version, 0, offset)


# `a` is written, replayed and written on; `b` is gone; `c` comes back after a new generation.
GOOD = [
    change("a", 1, 0, n=1),
    change("b", 1, 1, n=5),
    change("a", 2, 2, n=3),
    change("a", 1, 3, n=1),
    change("a", 2, 4, n=3),
    change("a", 3, 5, n=6),
    change("b", 2, 6),
    change("c", 9, 7, n=9),
    replace(change("c", 1, 8, n=2), generation=2),
]
EXPECTED = {"a": {"k": "a", "n": 6}, "c": {"k": "c", "n": 2}}


def changed(offset: int, **changes: Any) -> list[Change]:
    return [replace(one, **changes) if one.offset == offset else one for one in GOOD]


ANOMALIES: dict[str, list[Change]] = {
    "lost: 'a' was never": [one for one in GOOD if one.key != "a"],
    "wrong row: 'a'": [one for one in GOOD if one.offset != 5],
    "lost: 'a' is gone": changed(5, value=None),
    "wrong row: 'c'": [*GOOD, replace(change("c", 1, 9, n=3), generation=2)],
    "going back: 'a'": [*GOOD, change("a", 2, 9, n=3)],
    "going back: 'c'": [*GOOD, change("c", 10, 9, n=9)],
    "zombie: 'b'": [one for one in GOOD if one.offset != 6],
    "zombie: 'd'": [*GOOD, change("d", 1, 9, n=1)],
    "one partition: 'a'": changed(0, partition=1),
    "two rows: 'a'": changed(4, value=b'{"k": "a", "n": 4}'),
}


def test_a_good_changelog_has_no_violations() -> None:
    assert violations(GOOD, EXPECTED, exact=True) == [] and repeats(GOOD) == 2


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_an_anomaly_is_found(anomaly: str) -> None:
    found = violations(ANOMALIES[anomaly], EXPECTED, exact=True)
    key = anomaly.partition(": ")[2][:3]
    assert found[0].startswith(anomaly) and all(f": {key}" in one for one in found)


def test_keys_of_several_columns_are_compared_as_values() -> None:
    written = [Change('["\\u0061", 1]', b'{"n":1}', 1, 1, 0, 0)]
    assert violations(written, {("a", 1): {"n": 1}}, several=True) == []
    assert violations(written, {("a", 2): {"n": 1}}, several=True) != []


@given(st.data())
def test_what_a_reader_ends_with_is_what_is_checked(data: st.DataObject) -> None:
    versions = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    rows = data.draw(st.lists(st.integers(0, 1), min_size=len(versions), max_size=len(versions)))
    written = [change("a", v, offset, n=row) for offset, (v, row) in enumerate(zip(versions, rows, strict=True))]
    held, rank = None, 0
    for one in written:
        if one.version > rank:
            held, rank = json.loads(one.value or b""), one.version
    if violations(written, {"a": {"k": "a", "n": 1}}) == []:
        assert held == {"k": "a", "n": 1} and written[-1].version == rank


def event(source: int, version: int, offset: int, n: int) -> Change:
    return Change("a", json.dumps({"n": n}).encode(), 1, version, 0, offset, source)


FEED = [event(0, 1, 0, 1), event(1, 1, 1, 2), event(0, 3, 2, 3), event(1, 2, 3, 4)]
EVENTS = [("a", 0, 1, {"n": 1}), ("a", 0, 3, {"n": 3}), ("a", 1, 1, {"n": 2}), ("a", 1, 2, {"n": 4})]
AGAIN = event(0, 1, 4, 1)


@pytest.mark.parametrize(
    ("anomaly", "spoil"),
    [
        ("lost", lambda feed: feed[1:]),
        ("repeated", lambda feed: [*feed, AGAIN]),
        ("wrong row", lambda feed: [replace(feed[0], value=b'{"n":7}'), *feed[1:]]),
        ("zombie", lambda feed: [*feed, event(0, 9, 9, 9)]),
        ("going back", lambda feed: [replace(feed[0], offset=2), replace(feed[2], offset=0), feed[1], feed[3]]),
    ],
)
def test_an_anomaly_of_a_feed_is_found(anomaly: str, spoil: Callable[[list[Change]], list[Change]]) -> None:
    assert feed_violations(FEED, EVENTS) == []
    found = feed_violations(spoil(FEED), EVENTS)
    assert len(found) == 1 and found[0].startswith(anomaly)


def test_what_a_crash_repeats_is_no_anomaly_where_it_is_expected() -> None:
    assert feed_violations([*FEED, AGAIN], EVENTS, once=False) == []
