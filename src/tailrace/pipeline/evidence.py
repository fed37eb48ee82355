"""Evidence: what views and feeds have said of a topic's records, so that good ones are not searched for dead letters.

Each output counts what it skips. Where every output of a topic has read a range of it and skipped nothing, there is no
dead letter in the range. Decided without I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# So few records are searched at once, rather than waiting for what the outputs say when their batches end.
FEW = 20_000
# So many of a partition are searched at a time.
MOST = 500_000

# Partition → the offset that comes next.
Offsets = Mapping[int, int]


@dataclass(frozen=True)
class Account:
    """What one output says: up to where it has read the topic, and how many records it has skipped so far.

    `whole` is whether its build began at the earliest records.
    """

    generation: int
    offsets: Offsets
    skipped: int
    whole: bool = True


@dataclass(frozen=True)
class Searching:
    """Records up to `target` are to be searched."""

    target: Offsets


@dataclass(frozen=True)
class Passing:
    """Records up to `target` are known to be good: no search is needed."""

    target: Offsets


class Evidence:
    """The accounts of every output of one topic."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        # From where on an output has skipped nothing; None where that is not known yet.
        self._clean: dict[str, Offsets | None] = {}

    def hear(self, output: str, account: Account) -> None:
        """Take in how far an output is."""
        known = self._accounts.get(output)
        if known is None or known.generation != account.generation:
            if account.offsets:
                self._clean[output] = account.offsets
            else:
                self._clean[output] = {} if account.whole else None
        elif self._clean[output] is None or account.skipped != known.skipped:
            self._clean[output] = account.offsets or self._clean[output]
        self._accounts[output] = account

    def decide(self, searched: Offsets, ends: Offsets, *, impatient: bool) -> Searching | Passing | None:
        """What to do about the records after `searched`; None where it is not known yet.

        `impatient`: do not wait any longer for outputs that are behind, or have failed.
        """
        waiting = sum(max(0, end - searched.get(p, 0)) for p, end in ends.items())
        if waiting == 0:
            return None
        if waiting <= FEW or not self._accounts:
            return Searching(_capped(searched, ends))
        target = {p: min(end, max(searched.get(p, 0), self._reached(p))) for p, end in ends.items()}
        if target == {p: searched.get(p, 0) for p in ends}:
            return Searching(_capped(searched, ends)) if impatient else None
        if self._doubtful(searched) or impatient:
            return Searching(_capped(searched, target))
        if all(a.offsets.get(p, 0) >= end for a in self._accounts.values() for p, end in target.items()):
            return Passing(target)
        return None

    def _reached(self, partition: int) -> int:
        return max(account.offsets.get(partition, 0) for account in self._accounts.values())

    def _doubtful(self, searched: Offsets) -> bool:
        """Whether some output has skipped records after `searched`, or may have."""
        return any(
            clean is None or any(offset > searched.get(p, 0) for p, offset in clean.items())
            for clean in self._clean.values()
        )


def _capped(searched: Offsets, target: Offsets) -> Offsets:
    return {p: min(end, searched.get(p, 0) + MOST) for p, end in target.items()}
