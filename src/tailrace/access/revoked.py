"""What was revoked: single tokens, and the tokens that a subject has had until then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tailrace.access.identity import Identity

Times = tuple[int, int]


class Revoked:
    """Every revocation that this gateway has heard of, until it is over. Times are in ms since 1970.

    What was learnt stays, also where Redis has lost it: `lost` is what is to be written down there again.
    """

    def __init__(self) -> None:
        self._held: dict[str, Times] = {}
        self._news = asyncio.Event()
        self.loaded = False

    @property
    def news(self) -> asyncio.Event:
        """Is set when there are revocations that were not known at this call."""
        return self._news

    def learn(self, found: Mapping[str, Times], now: int) -> bool:
        """Take in what Redis holds; True where something is new."""
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
        """What is known here and is not in Redis, or reaches less far there."""
        nothing = (0, 0)
        return {
            name: times
            for name, times in self._held.items()
            if times[1] > now and any(a > b for a, b in zip(times, found.get(name, nothing), strict=True))
        }

    def includes(self, identity: Identity) -> bool:
        """Whether a token was revoked. Without `iat`, nobody knows that it is newer than a revocation."""
        if identity.token is not None and f"jti:{identity.token}" in self._held:
            return True
        times = self._held.get(f"sub:{identity.subject}") if identity.subject is not None else None
        return times is not None and (identity.issued is None or identity.issued * 1000 <= times[0])
