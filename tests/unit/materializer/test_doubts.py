"""A batch is doubted when it fails again and again at one offset, and not because Redis is away for long."""

from __future__ import annotations

from tailrace.materializer.poison_search import Doubts

HERE, THERE = ("changelog", 0), ("changelog", 1)


def test_a_batch_is_doubted_after_the_third_failure_at_one_offset() -> None:
    doubts = Doubts()
    for _ in range(2):
        doubts.note(HERE, 7)
        assert not doubts.about(HERE)
    doubts.note(HERE, 7)
    assert doubts.about(HERE) and not doubts.about(THERE)


def test_failures_at_other_offsets_are_not_counted_together() -> None:
    doubts = Doubts()
    for offset in (7, 8, 7, 8, 8):
        doubts.note(HERE, offset)
        assert not doubts.about(HERE)


def test_what_redis_says_itself_needs_no_repetition_and_a_batch_that_was_taken_ends_the_doubt() -> None:
    doubts = Doubts()
    doubts.raise_about(HERE, 7, "ERR")
    assert doubts.about(HERE)
    doubts.clear(HERE)
    doubts.note(HERE, 7)
    assert not doubts.about(HERE)
