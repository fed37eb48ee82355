"""Who owes a request, how many connections there may be, and who does not read."""

from __future__ import annotations

from tailrace.gateway.connection.arrivals import Arrivals, Capacity, Unread


def test_there_is_room_for_the_gateway_itself_and_for_health() -> None:
    for descriptors in (16, 64, 160, 300, 1024, 65_536):
        found = Capacity.of(descriptors)
        assert found.reserve > 0 and found.most > 0
        assert found.most + found.reserve <= descriptors - min(100, descriptors // 4)
    assert Capacity.of(1024) == Capacity(892, 32)


def test_the_limit_is_near_before_it_is_reached() -> None:
    capacity = Capacity(100, 10)
    assert not capacity.near(80) and capacity.near(81)


def test_who_owes_a_request_is_overdue_once() -> None:
    arrivals = Arrivals[str]()
    arrivals.expect("a", 10)
    arrivals.expect("b", 20)
    assert arrivals.overdue(9) == []
    assert arrivals.overdue(10) == ["a"] and arrivals.overdue(15) == []
    arrivals.forget("b")
    assert arrivals.overdue(99) == [] and len(arrivals) == 0
    arrivals.forget("b")


def test_who_has_waited_longest_comes_first() -> None:
    arrivals = Arrivals[str]()
    for guest, until in (("a", 30.0), ("b", 5.0), ("c", 10.0)):
        arrivals.expect(guest, until)
    assert list(arrivals) == ["a", "b", "c"]
    arrivals.expect("a", 40)
    assert list(arrivals) == ["b", "c", "a"]
    arrivals.forget("b")
    assert list(arrivals) == ["c", "a"]


def test_who_reads_a_little_is_not_stuck() -> None:
    unread = Unread()
    assert unread.stuck(100, 0) == 0
    assert unread.stuck(100, 5) == 5
    assert unread.stuck(99, 6) == 0
    assert unread.stuck(120, 8) == 2
