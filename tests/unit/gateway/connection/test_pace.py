"""When what has changed is written: a burst waits for its rest, a row alone never."""

from __future__ import annotations

from tailrace.gateway.connection.pace import Pace


def test_a_row_that_comes_alone_never_waits() -> None:
    pace = Pace()
    pace.flushed(10.0)
    assert pace.wait(rows=1, keys=1) == 0
    assert pace.wait(rows=50, keys=50) == 0


def test_a_burst_waits_for_a_part_of_what_a_flush_takes_and_never_long() -> None:
    pace = Pace()
    assert pace.wait(rows=5, keys=1) == 0, "nothing is known of flushes yet"
    pace.flushed(0.006)
    assert 0.001 <= pace.wait(rows=5, keys=1) <= 0.006 / 4
    pace.flushed(60.0)
    assert 0.001 <= pace.wait(rows=5, keys=1) <= 0.002


def test_a_burst_to_few_clients_does_not_wait() -> None:
    pace = Pace()
    pace.flushed(0.0005)
    assert pace.wait(rows=64, keys=1) == 0
