"""The JVM has memory for the longest records that topics take, unless the user or the machine says otherwise."""

from __future__ import annotations

import pytest

from tailrace import App
from tailrace.pipeline.spark.memory import Memory, granted, heap_is_chosen, least_heap, needed, of_machine, too_little

MB = 1024 * 1024


def app(*, feeds: int = 0, counts: int = 0) -> App:
    found = App("movies")
    notes = found.topic("notes", value="client string, text string")
    found.topic("unused", value="client string")
    for number in range(feeds):
        found.feed(f"feed-{number}", notes, key="client")
    for number in range(counts):
        found.view(f"count-{number}", notes, key="client", columns={"n": "count(*)"})
    return found


def wanted(found: App, size: int, partitions: int = 1, state: int = 1) -> Memory:
    return needed(found, {"notes": size * MB}, {"notes": partitions}, state)


def test_short_records_need_what_spark_has_by_itself() -> None:
    assert wanted(app(feeds=2, counts=1), 1, partitions=2, state=1) == Memory() == Memory(1024, 512, 256)
    assert needed(app(feeds=40), {}, {}, 2) == Memory()


def test_each_partition_of_a_state_needs_more_and_one_view_may_be_built_anew() -> None:
    assert [needed(app(counts=number), {}, {}, 2).state for number in (0, 1, 2)] == [256, 512, 768]
    assert needed(app(counts=1), {}, {}, 4).state == 1024


def test_longer_records_need_more_for_each_view_partition_and_state() -> None:
    sizes = [
        wanted(app(feeds=1), 40).heap,
        wanted(app(feeds=2), 40).heap,
        wanted(app(feeds=1, counts=1), 40).heap,
        wanted(app(feeds=1, counts=1), 40, state=2).heap,
        wanted(app(feeds=1, counts=1), 40, partitions=2, state=2).heap,
        wanted(app(feeds=1, counts=1), 80, partitions=2, state=2).heap,
    ]
    assert sizes == sorted(set(sizes)) and sizes[0] > 1024
    assert wanted(app(feeds=9), 90).sorting == 512 < wanted(app(counts=2), 90, partitions=4).sorting


def test_each_topic_that_is_searched_for_dead_letters_and_each_stage_of_state_needs_more() -> None:
    found = App("movies")
    first, second = (found.topic(name, value="client string, id string") for name in ("first", "second"))
    for name, topic in (("a", first), ("b", second)):
        found.view(name, topic, key="client", columns={"n": "count(*)"})
    longest, partitions = {"first": 40 * MB, "second": 40 * MB}, {"first": 1, "second": 1}
    both = needed(found, longest, partitions, 1).heap
    assert both - 400 == 2 * (wanted(app(counts=1), 40).heap - 400)

    twice = App("movies")
    notes = twice.topic("notes", value="client string, id string").dedupe(by="id")
    twice.view("count-0", notes, key="client", columns={"n": "count(*)"})
    assert wanted(twice, 40).heap > wanted(app(counts=1), 40).heap


def test_one_long_record_at_a_time_needs_no_more_for_more_partitions() -> None:
    found = app(feeds=1, counts=1)
    assert least_heap(found, {"notes": 40 * MB}) == wanted(found, 40).heap < wanted(found, 40, partitions=2).heap


def test_a_small_machine_gives_its_share_and_never_less_than_the_usual() -> None:
    assert granted(Memory(9000, 3000, 2000), 100_000) == Memory(9000, 3000, 2000)
    assert granted(Memory(9000, 3000, 2000), 8000) == Memory(4000, 1600, 1200)
    assert granted(Memory(9000, 3000, 2000), 500) == Memory()
    assert of_machine() > 100


@pytest.mark.parametrize(
    "environment",
    [{"SPARK_DRIVER_MEMORY": "2g"}, {"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g pyspark-shell"}],
)
def test_a_heap_that_the_user_has_chosen_is_known(environment: dict[str, str]) -> None:
    assert heap_is_chosen(environment)


def test_an_option_of_java_that_spark_overrides_chooses_nothing() -> None:
    assert not heap_is_chosen({"JAVA_TOOL_OPTIONS": "-Xmx2g -XX:+UseZGC", "SPARK_SUBMIT_OPTS": "-Xmx2g"})


def test_a_heap_that_one_record_may_fill_is_told_with_the_topic_and_what_to_do() -> None:
    longest = {"notes": 40_000_000, "ratings": 1_000_000}
    told = too_little(3000, 1000, longest)
    assert told is not None
    assert "topic notes takes records of up to 40 MB" in told
    assert "expected a heap of 3000 MB at least, got 1000" in told and "SPARK_DRIVER_MEMORY=3000m" in told
    assert too_little(3000, 2700, longest) is None


@pytest.mark.parametrize("longest", [{}, {"notes": MB}])
def test_a_small_heap_that_the_user_has_chosen_is_enough_for_short_records(longest: dict[str, int]) -> None:
    assert too_little(least_heap(app(counts=1), longest), 430, longest) is None
