"""How far a partition of a query was followed: what each message is, and what a read leaves to be told."""

from __future__ import annotations

import pytest

from tailrace.gateway.live.queries.state import QueryProgress, Verdict
from tailrace.store.layout.message import GONE, READY, ROW, Message, QueryEvent


def message(
    number: int, key: bytes = b"a", *, kind: bytes = ROW, offset: int = 9, settled: bool = True, version: int = 0
) -> Message:
    return Message(number, settled, QueryEvent(kind, key, 1, version, offset, 0, b"{}" if kind == ROW else None))


@pytest.fixture
def course() -> QueryProgress:
    """One that was read at offset 5, after message 10."""
    found = QueryProgress(1)
    found.restart(5, 10, {}, 10)
    return found


def test_only_the_next_number_is_applied(course: QueryProgress) -> None:
    verdicts = [course.judge(message(number)) for number in (9, 10, 11, 12)]
    assert verdicts == [Verdict.OLD, Verdict.OLD, Verdict.NEXT, Verdict.MISSED]
    course.live = False
    assert course.judge(message(11)) is Verdict.MISSED


def test_ready_is_the_next_message_where_the_position_is_not_within_the_break(course: QueryProgress) -> None:
    assert course.judge(message(11, b"", kind=READY, version=5)) is Verdict.NEXT
    assert course.judge(message(11, b"", kind=READY, version=4)) is Verdict.MISSED
    for number in (9, 10, 12):
        assert course.judge(message(number, b"", kind=READY, version=5)) is Verdict.MISSED


def test_another_build_is_not_followed(course: QueryProgress) -> None:
    assert course.judge(Message(11, True, QueryEvent(ROW, b"a", 2, 1, 9, 0, b"{}"))) is Verdict.MISSED


def test_only_settled_messages_move_the_position_and_never_back(course: QueryProgress) -> None:
    course.advance(message(11, offset=9, settled=False))
    assert (course.number, course.offset) == (11, 5)
    course.advance(message(12, offset=8))
    course.advance(message(13, kind=GONE, offset=7))
    assert (course.number, course.offset) == (13, 8)


def test_a_read_of_several_pages_goes_on_from_the_first_and_no_key_goes_back(course: QueryProgress) -> None:
    course.restart(6, 20, {b"a": 20, b"b": 22}, 22)
    assert (course.number, course.offset) == (20, 6)
    assert course.advance(message(21, b"b")) is False, "a later page has told newer of it"
    assert course.advance(message(22, b"a", kind=GONE)) is True, "it has left after its page"
    assert course.advance(message(23, b"b")) is True


def test_what_is_forgotten_begins_from_nothing(course: QueryProgress) -> None:
    course.forget()
    assert not course.live and course.offset is None and course.leaps == 1
    assert course.judge(message(11)) is Verdict.MISSED
