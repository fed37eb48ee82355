"""The keys that were added to a stream and removed from it, for clients that were away.

Changes are numbered from 1. The position of a stream of keys says which one its client has heard of last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# How many keys' last changes are remembered; a client that has missed more gets everything.
MOST = 1_000


@dataclass(frozen=True)
class KeyChanges:
    """The number of the last change, and by key the numbers of the changes that last added and removed it.

    A key may be in both, if it was removed, and added again later. The keys of changes up to `forgotten` are not known
    any more. The keys that a stream was opened with are in neither.
    """

    number: int = 0
    forgotten: int = 0
    added: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)

    def then(self, before: Sequence[str], after: Sequence[str]) -> KeyChanges:
        """These changes, and one more if other keys are followed after it than before."""
        came, left = set(after).difference(before), set(before).difference(after)
        if not came and not left:
            return self
        number, forgotten = self.number + 1, self.forgotten
        added = {key: at for key, at in self.added.items() if key not in left} | dict.fromkeys(sorted(came), number)
        removed = {**self.removed, **dict.fromkeys(sorted(left), number)}
        if len(added) + len(removed) > MOST:
            forgotten = sorted((*added.values(), *removed.values()))[-MOST - 1]
            added = {key: at for key, at in added.items() if at > forgotten}
            removed = {key: at for key, at in removed.items() if at > forgotten}
        return KeyChanges(number, forgotten, added, removed)

    def since(self, number: int) -> tuple[set[str], set[str]] | None:
        """For a client that knows of changes up to a number: the keys that are new, and those that it must drop.

        The client may hold a key in both as it was before its removal. None if the changes are not known any more.
        """
        if not self.forgotten <= number <= self.number:
            return None
        added = {key for key, at in self.added.items() if at > number}
        return added, {key for key, at in self.removed.items() if at > number}


def decode_changes(found: object) -> KeyChanges | None:
    """The changes in a record, which has none if there were none. None if they can't be read."""
    if found is None:
        return KeyChanges()
    if not isinstance(found, dict):
        return None
    number, forgotten = found.get("number"), found.get("forgotten")
    added, removed = _numbered(found.get("added")), _numbered(found.get("removed"))
    if type(number) is not int or type(forgotten) is not int or added is None or removed is None:
        return None
    return KeyChanges(number, forgotten, added, removed)


def _numbered(found: object) -> Mapping[str, int] | None:
    return found if isinstance(found, dict) and all(type(number) is int for number in found.values()) else None
