"""Every kind of view on random histories, in one batch: each plan gives what a fold in plain Python gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import folds
import histories
import kinds
from histories import Record, Send
from ledger import ordered
from tailrace import testing
from tailrace.declarations.views import REAL_TIME
from tailrace.pipeline.changelog.changelog import changes
from tailrace.pipeline.view.dry_run import _rows, rows

START = 1_767_225_600_000
EVENTS, TABLES = kinds.over_events(modes=[REAL_TIME]), kinds.over_tables(modes=[REAL_TIME])
OUTPUTS = {kind: output for each in (EVENTS, TABLES) for (kind, _), output in each.outputs.items()}


def some(examples: int) -> settings:
    """Without a pipeline a history costs little, so there are more of them."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


def in_order(sends: list[Send]) -> dict[str, list[Record]]:
    """The records by topic, with the offsets that a view on given rows counts."""
    found: dict[str, list[Record]] = {}
    for record in histories.records(sends, "", START):
        listed = found.setdefault(record.topic, [])
        listed.append(replace(record, offset=len(listed)))
    return found


def given_rows(history: Mapping[str, list[Record]]) -> dict[str, list[testing.Record]]:
    return {
        topic: [
            testing.Record(
                record.value,
                key=record.key,
                headers={name: value.decode() for name, value in record.headers},
                timestamp=datetime.fromtimestamp(record.timestamp / 1000, UTC),
                partition=record.partition,
            )
            for record in records
        ]
        for topic, records in history.items()
    }


def agree(kind: str, fold: folds.Fold, sends: list[Send], topics: set[str], *, batches: bool) -> None:
    history = {topic: records for topic, records in in_order(sends).items() if topic in topics}
    found = rows(OUTPUTS[kind], given_rows(history), batches=batches)
    assert by_text(found) == by_text(list(fold(history).values()))


def by_text(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: sorted((name, str(value)) for name, value in row.items()))


@pytest.mark.parametrize("kind", folds.OVER_EVENTS)
def test_a_view_over_events_holds_what_the_fold_holds(spark: SparkSession, kind: str, examples: int) -> None:
    @some(examples)
    @example(histories.everything(), True)
    @given(histories.events(), st.booleans())
    def check(sends: list[Send], batches: bool) -> None:
        agree(kind, folds.OVER_EVENTS[kind], sends, {"events"}, batches=batches)

    check()


READS = {"recent": {"a"}, "averages": {"events"}, "good": {"events"}, "enriched": {"events", "a"}}


@pytest.mark.parametrize("kind", folds.OVER_TABLES)
def test_a_view_over_tables_holds_what_the_fold_holds(spark: SparkSession, kind: str, examples: int) -> None:
    read = READS.get(kind, {"a", "b"} if kind.startswith("two") else {"a", "b", "c"})

    @some(examples)
    @example(histories.everything(), True)
    @given(histories.rated() if "events" in read else histories.puts(tables=sorted(read)), st.booleans())
    def check(sends: list[Send], batches: bool) -> None:
        agree(kind, folds.OVER_TABLES[kind], sends, read, batches=batches)

    check()


@pytest.mark.parametrize(("kind", "spread"), [("two-left", 0), ("two-outer", 3), ("recent", 3)])
def test_a_record_without_a_key_that_can_not_be_read_is_no_row(spark: SparkSession, kind: str, spread: int) -> None:
    """A changelog takes no record without a key: one would end the query at each start."""
    unkeyed = [testing.Record(b"", key=None), testing.Record(b"x" * 9, key=b"k" * 70_000)]
    given = {"a": [*unkeyed, testing.Record(None, key=b"")], **({} if kind == "recent" else {"b": unkeyed})}
    written = changes(_rows(OUTPUTS[kind], given, spread=spread), OUTPUTS[kind].row_key, 1)
    assert {row.key for row in written.collect()} == {""}


@pytest.mark.parametrize("kind", ["last", "recent", "two-outer", "three-left"])
def test_of_a_key_that_has_moved_the_newest_record_of_each_partition_counts(
    spark: SparkSession, kind: str, examples: int
) -> None:
    """And of these the one with the latest timestamp, whatever the timestamps of records before it."""
    fold = {**folds.OVER_EVENTS, **folds.OVER_TABLES}[kind]
    tables = (
        [] if kind == "last" else sorted(READS.get(kind, {"a", "b"} if kind.startswith("two") else {"a", "b", "c"}))
    )

    @some(examples)
    @example(histories.everything(), True)
    @given(histories.puts(tables=tables) if tables else histories.events(), st.booleans())
    def check(sends: list[Send], batches: bool) -> None:
        found = {topic: listed for topic, listed in in_order(sends).items() if topic in (tables or ["events"])}
        moved = {t: [replace(one, partition=one.offset % 3) for one in listed] for t, listed in found.items()}
        held = rows(OUTPUTS[kind], given_rows(moved), batches=batches, spread=3)
        expected = fold(ordered(one for listed in moved.values() for one in listed))
        assert by_text(held) == by_text(list(expected.values()))

    check()


def test_a_feed_holds_every_event(spark: SparkSession, examples: int) -> None:
    @some(examples)
    @example(histories.everything())
    @given(histories.events())
    def check(sends: list[Send]) -> None:
        history = {"events": in_order(sends).get("events", [])}
        found = testing.rows(OUTPUTS[kinds.FEED], given_rows(history))
        assert found == [row for _, _, _, row in sorted(folds.feed(history), key=lambda event: event[2])]

    check()
