"""A dead letter holds its record, or where it doesn't fit says where the record is."""

from __future__ import annotations

import pytest

from tailrace.kafka.dead_letters import DeadLetter

LETTER = DeadLetter("t", 3, 17, 1700, b"key", b"v" * 1000, [("trace", b"x" * 100), ("none", None)], "malformed", "a,b")
WHERE = {"tailrace.topic": b"t", "tailrace.partition": b"3", "tailrace.offset": b"17", "tailrace.timestamp": b"1700"}


@pytest.mark.parametrize("longest", [2000, 10_000_000])
def test_a_letter_holds_the_record_byte_for_byte_and_where_it_was(longest: int) -> None:
    record = LETTER.outgoing(longest)
    assert (record.topic, record.key, record.value) == ("t.dead-letters", LETTER.key, LETTER.value)
    assert record.headers[:2] == LETTER.headers
    assert WHERE.items() < dict(record.headers).items() and dict(record.headers)["tailrace.error"] == b"malformed"


def test_of_a_record_that_does_not_fit_the_letter_says_where_it_is_and_why() -> None:
    record = LETTER.outgoing(1400)
    assert (record.key, record.value) == (None, None)
    assert WHERE.items() < dict(record.headers).items() and "trace" not in dict(record.headers)
    error = (dict(record.headers)["tailrace.error"] or b"").decode()
    assert error.startswith("malformed; ") and "longer than this topic takes" in error
