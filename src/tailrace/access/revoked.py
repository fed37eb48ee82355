"""Revocations: of single tokens, and of the tokens that a subject had until then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tailrace.access.identity import Identity

Times = tuple[int, int]


class Revoked:
    """Every revocation that this gateway has heard of, until it is over. Times are in ms since 1970.

    It keeps them even if Redis has lost them: `lost` lists those to write back.
    """

    def __init__(self) -> None:
        self._held: dict[str, Times] = {}
        self._news = asyncio.Event()
        self.loaded = False

    @property
    def news(self) -> asyncio.Event:
        """An event that is set when revocations come that are not known now."""
        return self._news

    def learn(self, found: Mapping[str, Times], now: int) -> bool:
        """Add what Redis holds. True if something is new."""
        before = len(self._held)
        self._held = {name: times for name, times in self._held.items() if times[1] > now}
        changed = False
        for name, times in found.items():
            if times[1] > now and self._held.get(name) != times:
                old = self._held.get(name, (0, 0))
                self._held[name] = (max(old[0], times[0]), max(old[1], times[1]))
                changed = True
        self.loaded = True
        changed = changed or len(self._held) > before
        if changed:
            told, self._news = self._news, asyncio.Event()
            told.set()
        return changed

    def lost(self, found: Mapping[str, Times], now: int) -> dict[str, Times]:
        """Revocations that Redis lacks, or has for a shorter time."""
        nothing = (0, 0)
        return {
            name: times
            for name, times in self._held.items()
            if times[1] > now and any(a > b for a, b in zip(times, found.get(name, nothing), strict=True))
        }

    def includes(self, identity: Identity) -> bool:
        """Whether a token was revoked. A token without `iat` counts as older than every revocation."""
        if identity.token is not None and f"jti:{identity.token}" in self._held:
            return True
        times = self._held.get(f"sub:{identity.subject}") if identity.subject is not None else None
        return times is not None and (identity.issued is None or identity.issued * 1000 <= times[0])
