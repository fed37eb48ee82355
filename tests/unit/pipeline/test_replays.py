"""What is read again after a crash: when it may differ from what was served, and that versions rise above that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipeline.lifecycle.backlog import backlog, lost, reached, waiting
from tailrace.pipeline.lifecycle.replays import STEP, Replays, raised

HOUR = 3_600_000


def test_a_replay_of_rows_that_are_one_record_each_never_differs() -> None:
    replays = Replays(accumulates=False, watermarked=True, compacted=frozenset({"t"}))
    assert not replays.differ(waiting={"t": 5}, cut=True)


def test_a_replay_differs_if_compaction_may_have_removed_events_that_wait() -> None:
    replays = Replays(accumulates=True, compacted=frozenset({"t"}))
    assert replays.differ(waiting={"t": 5}, cut=False) and not replays.differ(waiting={"t": 0, "u": 5}, cut=False)


def test_a_replay_differs_if_a_real_time_batch_may_be_cut_elsewhere_and_records_may_be_late() -> None:
    replays = Replays(accumulates=True, watermarked=True)
    assert replays.differ(waiting={}, cut=True) and not replays.differ(waiting={}, cut=False)
    assert not Replays(accumulates=True).differ(waiting={}, cut=True)


@given(
    counted=st.integers(0, 10**6),
    ends=st.lists(st.integers(0, 2**45), min_size=1, max_size=4),
    base=st.integers(0, 2**50),
)
def test_a_raised_base_is_above_every_version_that_was_served(counted: int, ends: list[int], base: int) -> None:
    bounds = {"t": {number: (0, end) for number, end in enumerate(ends)}}
    # At most every record counted once, or the newest offset of every partition added up.
    served = base + max(min(counted, sum(ends)), sum(ends))
    assert raised(base, bounds) + 1 > served and raised(base, bounds) - base >= STEP


def test_tombstones_may_be_gone_only_after_half_of_their_time_and_if_something_waits() -> None:
    replays = Replays(tombstones={"t": 24 * 3600})
    now = 100 * HOUR
    assert replays.outdated(now - 13 * HOUR, {"t": 1}, now)
    assert not replays.outdated(now - 11 * HOUR, {"t": 1}, now)
    assert not replays.outdated(now - 13 * HOUR, {"t": 0}, now)
    assert not replays.outdated(0, {"t": 1}, now), "nothing is known of when it was read to its end"


def test_a_partition_that_was_added_begins_at_its_first_record() -> None:
    bounds = {"t": {0: (0, 10), 1: (3, 7)}}
    assert waiting({"t": {0: 8}}, bounds) == {"t": 2 + 4} and lost({"t": {0: 8}}, bounds) == 3
    assert backlog({"t": {0: 10, 1: 7}}, bounds) == 0 and reached({"t": {0: 10, 1: 7}}, bounds)


def test_of_a_topic_that_was_never_read_nothing_is_lost() -> None:
    assert lost({}, {"t": {0: (5, 10)}}) == 0 and waiting({}, {"t": {0: (5, 10)}}) == {"t": 5}
