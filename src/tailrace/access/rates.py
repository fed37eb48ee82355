"""Rates: a number per second, and some at once, for each of many names."""

from __future__ import annotations

import math

_MOST = 50_000


class Bucket:
    """Fills with `rate` per second up to `burst`. Each use takes one or several out."""

    __slots__ = ("_at", "_burst", "_held", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._held = burst
        self._at = now

    def take(self, now: float, amount: float = 1) -> float:
        """0 if the amount was taken, otherwise how many seconds to wait. More than `burst` counts as all of it."""
        self._fill(now)
        amount = min(amount, self._burst)
        if self._held >= amount:
            self._held -= amount
            return 0.0
        return (amount - self._held) / self._rate

    def full(self, now: float) -> bool:
        """Whether it is full again, as if it had never been used."""
        self._fill(now)
        return self._held >= self._burst

    def _fill(self, now: float) -> None:
        self._held = min(self._burst, self._held + max(0.0, now - self._at) * self._rate)
        self._at = now


class Rates:
    """A bucket for each name that was used lately."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, Bucket] = {}
        self._tidied = -math.inf

    def take(self, name: str, now: float, amount: float = 1) -> float:
        """0 if a use is allowed, otherwise how many seconds to wait."""
        self._tidy(now)
        if name not in self._buckets:
            self._buckets[name] = Bucket(self._rate, self._burst, now)
        return self._buckets[name].take(now, amount)

    def __len__(self) -> int:
        return len(self._buckets)

    def _tidy(self, now: float) -> None:
        # After this time a bucket is full again, and need not be kept.
        if now - self._tidied < self._burst / self._rate and len(self._buckets) < _MOST:
            return
        self._tidied = now
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if not bucket.full(now)}
        if len(self._buckets) >= _MOST:
            self._buckets.clear()
