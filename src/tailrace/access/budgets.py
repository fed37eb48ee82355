"""Budgets: how much of something one user may hold, and all together. No I/O."""

from __future__ import annotations

from collections import Counter

from tailrace.access.refused import Refused

# After so many seconds something may have been given back.
_LATER = 5


class Budget:
    """What users hold of one thing: requests, bytes or work. A holder gives it back under its name.

    `limit` names the settings: `--limit-user-<limit>` for one user, `--limit-<limit>` for all. A client without a
    user's name counts only for all. `lone`: a user that holds nothing may have one thing of any size.
    """

    def __init__(self, limit: str, what: str, user: int, total: int, *, lone: bool = False) -> None:
        self.limit = limit
        self._what = what
        self._user = user
        self._total = total
        self._lone = lone
        self._users: Counter[str] = Counter()
        self._held: dict[object, tuple[str, int]] = {}
        self.used = 0

    def check(self, user: str, amount: int, holder: object = None) -> None:
        """Raise Refused if a user can't have this amount in place of what the holder has."""
        before, had = self._held.get(holder, (user, 0))
        self._check(before, amount, had)

    def hold(self, holder: object, user: str, amount: int) -> None:
        """Take an amount, in place of what the holder had before. Raises Refused if it exceeds a budget."""
        before, had = self._held.get(holder, (user, 0))
        self._check(before, amount, had)
        self.release(holder)
        self._held[holder] = before, amount
        self._users[before] += amount
        self.used += amount

    def release(self, holder: object) -> None:
        """Give back everything that a holder has."""
        user, amount = self._held.pop(holder, ("", 0))
        self.used -= amount
        self._users[user] -= amount
        if self._users[user] <= 0:
            del self._users[user]

    def __len__(self) -> int:
        return len(self._held)

    def _check(self, user: str, amount: int, had: int) -> None:
        if amount <= had:
            return
        if user:
            self._compare(429, self._users[user], amount, had, self._user, "user")
        self._compare(503, self.used, amount, had, self._total, "gateway")

    def _compare(self, status: int, used: int, amount: int, had: int, most: int, whose: str) -> None:
        rest = used - had
        if rest + amount <= most or (self._lone and rest == 0):
            return
        flag = f"--limit-user-{self.limit}" if whose == "user" else f"--limit-{self.limit}"
        raise Refused(
            status,
            f"too many {self._what}" if whose == "user" else "no room",
            expected=f"at most {most} {self._what} of one {whose}",
            got=f"{amount} more than {rest}",
            remedy=f"Try again later, when some are given back; the gateway's {flag} sets the limit.",
            retry_after=_LATER,
            limit=flag,
        )
