"""What a client that was away is told of the keys of its stream: whoever comes back holds the keys that it follows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts import key_changes
from tailrace.contracts.commands import Command, NotACommand, Stream, decode_command
from tailrace.contracts.key_changes import KeyChanges
from tailrace.contracts.position import Position
from tailrace.gateway.live.streams.position import stream_entry

sets = st.lists(st.frozensets(st.sampled_from("abcde")).map(sorted).map(tuple), min_size=1, max_size=8)


def history(keys: list[tuple[str, ...]]) -> list[Stream]:
    """A stream as it was after each change of its keys."""
    found = [Stream("s-1", "v", keys[0], None, True, 0)]
    for following in keys[1:]:
        before = found[-1]
        found.append(replace(before, keys=following, changes=before.changes.then(before.keys or (), following)))
    return found


def came_back(held: set[str], stream: Stream, position: str | None, positions: dict[str, str]) -> tuple[set[str], bool]:
    """What a client holds after it has come back, where every key holds a row; and whether it was reset."""
    entry = stream_entry(stream, position, positions)
    if entry.reset is not None:
        return set(stream.keys or ()), True
    held = {key for key in held if key.encode() not in entry.departed}
    held |= {key for key in stream.keys or () if entry.positions.get(key.encode(), position) is None}
    return held, False


@given(sets, st.data())
def test_whoever_comes_back_holds_the_keys_that_the_stream_has(
    keys: list[tuple[str, ...]], data: st.DataObject
) -> None:
    known = history(keys)
    last = known[-1]
    seen = data.draw(st.sampled_from(known))
    position = str(Position("0123abcd", 1, {0: 5}, seen.changes.number))
    assert came_back(set(seen.keys or ()), last, position, {}) == (set(last.keys or ()), False)
    positions = dict.fromkeys(seen.keys or (), position)
    if positions:
        assert came_back(set(seen.keys or ()), last, None, positions) == (set(last.keys or ()), False)


@given(sets)
def test_who_has_missed_nothing_is_told_nothing(keys: list[tuple[str, ...]]) -> None:
    last = history(keys)[-1]
    assert last.changes.since(last.changes.number) == (set(), set())
    assert last.changes.then(keys[-1], tuple(reversed(keys[-1]))) == last.changes, "another order is no change"


@given(sets, st.integers(0, 5), st.data())
def test_what_is_forgotten_is_a_reset_and_never_a_gap(
    keys: list[tuple[str, ...]], most: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_changes, "MOST", most)
        known = history(keys)
    last = known[-1]
    assert len(last.changes.added) + len(last.changes.removed) <= most
    seen = data.draw(st.sampled_from(known))
    position = str(Position("0123abcd", 1, {}, seen.changes.number))
    held, reset = came_back(set(seen.keys or ()), last, position, {})
    assert held == set(last.keys or ()) and (not reset or seen is not last)


def test_a_position_from_before_the_first_change_has_no_number() -> None:
    stream = Stream("s-1", "v", ("a",), None, True, 0, changes=KeyChanges().then((), ("a",)))
    assert stream_entry(stream, "0123abcd.1.0-5", {}).positions == {b"a": None}
    assert stream_entry(stream, "0123abcd.1.0-5.c1", {}).positions == {}
    ahead = stream_entry(stream, "0123abcd.1.0-5.c2", {}).reset
    assert ahead is not None and ahead.reason == "ahead"
    assert stream_entry(stream, "no position", {}).reset is None, "that is judged with the rows"


@given(sets)
def test_a_record_holds_the_changes_of_its_keys(keys: list[tuple[str, ...]]) -> None:
    stream = history(keys)[-1]
    done = Command("add", stream)
    assert decode_command("s-1", done.encode()) == done


@pytest.mark.parametrize(
    "changes",
    [
        [],
        {},
        {"number": 1, "forgotten": 0, "added": {"a": "1"}, "removed": {}},
        {"number": 1, "forgotten": 0, "added": None, "removed": {}},
        {"number": True, "forgotten": 0, "added": {}, "removed": {}},
    ],
)
def test_changes_that_cannot_be_read_are_refused(changes: object) -> None:
    record = json.loads(Command("open", Stream("s-1", "v", ("a",), None, True, 0)).encode())
    record["stream"]["changes"] = changes
    with pytest.raises(NotACommand, match="`changes` of the stream"):
        decode_command("s-1", json.dumps(record).encode())
