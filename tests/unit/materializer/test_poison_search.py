"""A record that Redis never takes is passed over only if Redis takes the position after it."""

from __future__ import annotations

import pytest

from tailrace.materializer.poison_search import NotKept, passed
from tailrace.store.write.feeds import Taken
from tailrace.store.write.writer import Applied, PositionMoved, Rejected


def test_what_redis_answers_to_the_position_after_a_record_counts() -> None:
    assert passed(Applied(0)) is None and passed(Taken(0, 0)) is None
    assert passed(PositionMoved(7)) == PositionMoved(7)
    with pytest.raises(NotKept):
        passed(Rejected("ERR"))
