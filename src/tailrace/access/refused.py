"""A refusal and its reason: one exception, which every surface reports in its own way."""

from __future__ import annotations


class Refused(Exception):
    """The client gets nothing. `status` is HTTP's: 401 asks for another token, 403 is final, 429 and 503 mean later.

    `limit` is the flag of the limit that was reached, if any. No field holds a token, a key or a part of one.
    """

    def __init__(
        self,
        status: int,
        error: str,
        *,
        expected: str,
        remedy: str,
        got: str = "none",
        retry_after: int | None = None,
        limit: str | None = None,
    ) -> None:
        super().__init__(f"{error}: expected {expected}, got {got}. {remedy}")
        self.status = status
        self.error = error
        self.expected = expected
        self.got = got
        self.remedy = remedy
        self.retry_after = retry_after
        self.limit = limit

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the answer, besides the status."""
        told = {"error": self.error, "expected": self.expected, "got": self.got, "remedy": self.remedy}
        return told if self.limit is None else {**told, "limit": self.limit}


def unauthorized(error: str, expected: str, got: str, remedy: str) -> Refused:
    """A 401: there is no token, or one that is not valid."""
    return Refused(401, error, expected=expected, got=got, remedy=remedy)


def forbidden(error: str, expected: str, got: str, remedy: str) -> Refused:
    """A 403: the client is known, and may not do this."""
    return Refused(403, error, expected=expected, got=got, remedy=remedy)
