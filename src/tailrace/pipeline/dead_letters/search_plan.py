"""Evidence: what views and feeds have said of a topic's records, so that good ones are not searched for dead letters.

Each output counts what it skips. Where every output of a topic has read a range of it and skipped nothing, there is no
dead letter in the range. Decided without I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

# So many of a partition are searched at a time.
MOST = 500_000

# Partition → the offset that comes next.
Offsets = Mapping[int, int]


@dataclass(frozen=True)
class Account:
    """What one output says: up to where it has read the topic, and how often it has skipped something so far.

    A batch of which nobody knows what it skipped counts, too. `whole`: its build began at the earliest records.
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
            if account.whole and not account.skipped:
                self._clean[output] = {}
            else:
                self._clean[output] = account.offsets or None
        elif self._clean[output] is None or account.skipped != known.skipped:
            self._clean[output] = account.offsets or self._clean[output]
        self._accounts[output] = account

    def decide(self, searched: Offsets, ends: Offsets, *, impatient: bool) -> Searching | Passing | None:
        """What to do about the records after `searched`; None where it is not known yet.

        `impatient`: do not wait any longer for outputs that are behind, or have failed.
        """
        here = {p: searched.get(p, 0) for p in ends}
        if all(here[p] >= end for p, end in ends.items()):
            return None
        if not self._accounts:
            return Searching(_capped(here, ends))
        reached, vouched = self._read(max, here, ends), self._read(min, here, ends)
        if reached == here:
            return Searching(_capped(here, ends)) if impatient else None
        if self._doubtful(here):
            return Searching(_capped(here, reached))
        if vouched != here:
            return Passing(vouched)
        return Searching(_capped(here, reached)) if impatient else None

    def _read(self, choose: Callable[[Iterable[int]], int], here: Offsets, ends: Offsets) -> Offsets:
        """How far the first of the outputs has read, or the last, from here on."""
        read = {p: choose(account.offsets.get(p, 0) for account in self._accounts.values()) for p in ends}
        return {p: min(end, max(here[p], read[p])) for p, end in ends.items()}

    def _doubtful(self, here: Offsets) -> bool:
        """Whether some output has skipped records from here on, or may have."""
        return any(
            clean is None or any(offset > here.get(p, 0) for p, offset in clean.items())
            for clean in self._clean.values()
        )


def _capped(here: Offsets, target: Offsets) -> Offsets:
    return {p: min(end, here[p] + MOST) for p, end in target.items()}
