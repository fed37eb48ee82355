"""A query that can't be used: what was expected, what came and where, and what to do."""

from __future__ import annotations


class QueryError(ValueError):
    """Correct the query as the text says.

    `at` is the place in the query, in characters from 0; None if the error is about the whole query.
    """

    def __init__(self, *, expected: str, got: str, remedy: str, at: int | None = None) -> None:
        self.expected = expected
        self.got = got
        self.remedy = remedy
        self.at = at
        place = "" if at is None else f" at character {at + 1}"
        super().__init__(f"the query{place}: expected {expected}, got {got}. {remedy}")
