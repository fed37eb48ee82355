"""A partition of a feed that is being read."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from tailrace.kafka.changelogs import Partition
from tailrace.store.layout.feed_keys import FeedPlace

# Of an age, so long at most pass between two looks at the history of a client that gets events.
_SHARE = 100
# So many clients are remembered at most: those above it are looked at more often.
_MOST_CLIENTS = 100_000


class Tended:
    """Whose histories were looked at, for what is too old, a short while ago; decided without I/O."""

    def __init__(self) -> None:
        self._clients: set[bytes] = set()
        self._until = 0.0

    def due(self, clients: Set[bytes], age: float, now: float) -> set[bytes]:
        """Which of these clients are to be tended with the next batch; `age` and `now` in seconds."""
        if now >= self._until or len(self._clients) > _MOST_CLIENTS:
            self._clients = set()
            self._until = now + age / _SHARE
        found = set(clients - self._clients)
        self._clients |= found
        return found


@dataclass
class OpenFeed:
    """A partition that is being read, and what Redis holds of it.

    `stored` is the offset up to which Redis is known to hold it; up to `read`, records are on their way there, and
    `marks` are those that Redis holds then. `lettered` is as for a partition of a view.
    """

    place: FeedPlace
    begun: str
    stored: int
    target: int
    marks: dict[bytes, int]
    read: int = field(init=False)
    lettered: int | None = None
    tended: Tended = field(default_factory=Tended)

    def __post_init__(self) -> None:
        self.read = self.stored

    @property
    def partition(self) -> Partition:
        """The partition of the changelog."""
        return (self.place.feed.changelog, self.place.partition)

    @property
    def view(self) -> str:
        """The name of the feed."""
        return self.place.feed.name

    @property
    def lineage(self) -> str:
        """Which changelog it is of."""
        return self.place.lineage

    @property
    def generation(self) -> int:
        """The build that the catalog names."""
        return self.place.feed.generation

    @property
    def whole(self) -> bool:
        """Whether everything that the changelog held when the partition was opened is in the store."""
        return self.stored >= self.target
