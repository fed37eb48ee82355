"""The budgets of a gateway: what one user may hold, and what all users together may."""

from __future__ import annotations

import asyncio

from tailrace.access.budgets import Budget
from tailrace.access.identity import Identity
from tailrace.access.limits import BURST, Limits
from tailrace.access.rates import Rates
from tailrace.access.refused import Refused
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import refusal

# A listing counts as this many lookups and, while it is under way, as this many requests.
LISTING = 10
# Bytes that a stream takes beside its keys.
_STREAM = 1024
# Writing a stream counts as one lookup, and as one more for every so many bytes.
_WRITTEN = 1024


class Allowance(Budget):
    """A budget that counts what it refuses, and refuses with a Problem."""

    def __init__(self, metrics: Metrics, limit: str, what: str, user: int, total: int, *, lone: bool = False) -> None:
        super().__init__(limit, what, user, total, lone=lone)
        self._metrics = metrics
        metrics.used(limit, lambda: self.used)

    def _check(self, user: str, amount: int, had: int) -> None:
        try:
            super()._check(user, amount, had)
        except Refused as refused:
            self._metrics.limited(self.limit)
            raise refusal(refused) from None


class Budgets:
    """A budget for each thing that a client can take: see docs/access.md."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lookups = limits.lookups
        self._rates = Rates(limits.lookups, limits.lookups * BURST)
        self.requests = Allowance(metrics, "requests", "requests under way", limits.user_requests, limits.requests)
        self.unread = Allowance(
            metrics, "unread-bytes", "bytes of unread answers", limits.user_unread_bytes, limits.unread_bytes, lone=True
        )
        self.streams = Allowance(
            metrics, "stream-bytes", "bytes of streams", limits.user_stream_bytes, limits.stream_bytes
        )
        self.followed = Allowance(
            metrics, "followed-bytes", "bytes of followed keys", limits.user_followed_bytes, limits.followed_bytes
        )
        self.queries = Allowance(
            metrics, "query-cost", "comparisons in followed queries", limits.user_query_cost, limits.query_cost
        )

    def pace(self, user: str, work: int = 1) -> None:
        """Raise a Problem if a user asks for more work than it may. A lookup is 1."""
        if not user:
            return
        wait = self._rates.take(user, asyncio.get_running_loop().time(), work)
        if wait > 0:
            self._metrics.limited("lookups")
            flag = "--limit-lookups"
            raise refusal(
                Refused(
                    429,
                    "too many requests",
                    expected=f"at most {self._lookups} lookups of one user per second, or as much work",
                    got="more",
                    remedy=f"Try again later, or follow what you ask for; the gateway's {flag} sets the limit.",
                    retry_after=max(1, round(wait + 0.5)),
                    limit=flag,
                )
            )

    def write(self, stream: str, user: str, size: int) -> None:
        """Count a stream that is about to be written. Raises a Problem if its user has too many bytes, or
        writes too often.
        """
        self.streams.check(user, _STREAM + size, stream)
        self.pace(user, 1 + size // _WRITTEN)
        self.streams.hold(stream, user, _STREAM + size)

    def ended(self, stream: str) -> None:
        """Count a stream no longer."""
        self.streams.release(stream)
        self.queries.release(stream)

    def answered(self, holder: object) -> None:
        """Count a request no longer: its client has read the answer, or has left."""
        self.requests.release(holder)
        self.unread.release(holder)

    def left(self, subscription: object) -> None:
        self.followed.release(subscription)
        self.queries.release(subscription)


def user_of(identity: Identity | None) -> str:
    """The name that a client is counted by; empty without an identity."""
    return "" if identity is None else f"user:{identity.user}"
