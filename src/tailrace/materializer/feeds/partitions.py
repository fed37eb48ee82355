"""The partitions of feeds: where they begin, and what their batches are.

- A partition without a position begins where `start` says. A Redis that was emptied has lost the registrations of
  clients, too: the partition waits until gateways have registered them again, and then they get the events of the hold
  time.
- All events count but replays: these are not above the mark of their source. Marks and position move together.
- Once a second, registrations that have expired are dropped with what was kept for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from tailrace.contracts.catalog import Catalog, CatalogFeed
from tailrace.kafka.changelogs import Message, Partition
from tailrace.materializer.delays import times_of_events
from tailrace.materializer.feeds.batch import FeedBatch, gather
from tailrace.materializer.feeds.start import beginning
from tailrace.materializer.partition import OpenPartition
from tailrace.materializer.partitions import Closed, Opening, Partitions, SentBatch, Services
from tailrace.materializer.poison_search import Trial
from tailrace.materializer.records import LARGEST_BATCH, cut, raw, with_reasons
from tailrace.store.layout.feed_keys import REFRESH, FeedPlace
from tailrace.store.layout.packed_events import PackedEvents
from tailrace.store.layout.stored_position import StoredPosition
from tailrace.store.write.feeds import FeedParcel, Feeds, Taken
from tailrace.store.write.writer import PositionMoved, Rejected

log = logging.getLogger(__name__)

# Gateways refresh registrations more often than this.
GRACE = REFRESH + 2.0

# The most events in one script call, for the reason that holds for changes of views.
_MOST_EVENTS = 500
# The history of a client that gets events is looked at this many times in the time that it keeps events.
_SHARE = 100
# At most this many clients are remembered. If there are more, they are looked at more often.
_MOST_CLIENTS = 100_000


class Tended:
    """Remembers which clients' histories were lately looked at for events that are too old. Does no I/O."""

    def __init__(self) -> None:
        self._clients: set[bytes] = set()
        self._until = 0.0

    def due(self, clients: Set[bytes], age: float, now: float) -> set[bytes]:
        """The clients, out of these, to tend with the next batch; `age` and `now` are in seconds."""
        if now >= self._until or len(self._clients) > _MOST_CLIENTS:
            self._clients = set()
            self._until = now + age / _SHARE
        found = set(clients - self._clients)
        self._clients |= found
        return found


@dataclass
class FeedPartition(OpenPartition[CatalogFeed]):
    """An open partition of a feed.

    `begun` names the histories that Redis keeps of it. `marks` are, by source, the highest versions that Redis holds
    once everything up to `read` is there.
    """

    begun: str
    marks: dict[bytes, int]
    tended: Tended = field(default_factory=Tended)

    @property
    def feed_place(self) -> FeedPlace:
        """The partition as the store knows it, with what the catalog says of its feed."""
        return FeedPlace(self.entry, self.number, self.lineage)

    def take(self, entry: CatalogFeed) -> None:
        """Go on with another entry. A feed has no hand-over: the build that the catalog names is served at once."""
        self.entry, self.generation = entry, entry.generation


@dataclass(frozen=True)
class SentEvents(SentBatch[FeedPartition]):
    """Events on their way to Redis. `parcel` is None for records that must be searched: no event of them is known."""

    packed: PackedEvents
    parcel: FeedParcel | None


class FeedPartitions(Partitions[CatalogFeed, FeedPartition, SentEvents, Taken]):
    """The partitions of feeds that the group has assigned to this instance.

    `grace` is for how many seconds gateways may register their clients again after Redis was emptied.
    """

    def __init__(self, services: Services, *, grace: float = GRACE) -> None:
        super().__init__(services)
        self._feeds = Feeds(services.writer)
        self._grace = grace
        # When Redis was last seen to hold what was believed.
        self._alive: dict[Partition, float] = {}

    def revoke(self, partition: Partition) -> None:
        super().revoke(partition)
        self._alive.pop(partition, None)

    def _named(self, catalog: Catalog) -> Iterable[CatalogFeed]:
        return catalog.feeds.values()

    def _begin(self, opening: Opening[CatalogFeed]) -> FeedPartition | Closed:
        feed, partition, first, end = opening.entry, opening.partition, opening.first, opening.end
        alive = min(time.time(), self._alive.get(partition, time.time()))
        if (held := self._changelogs.at_time(partition, int((alive - feed.hold) * 1000))) is None:
            return Closed()
        stored = opening.stored.offset
        anew = stored is not None and stored >= end
        if anew:
            log.error("%s[%d]: Redis holds offset %s, but the changelog ends with %d", *partition, stored, end - 1)
        place = FeedPlace(feed, opening.number, opening.lineage)
        begun = self._feeds.begin(place, beginning(feed, first, end, held, self._grace), anew=anew)
        if begun.lost:
            self._counters.lost.labels(feed.name).inc(begun.lost)
            log.error(
                "%s[%d]: %d records were removed by retention before they were read; clients that miss events are told",
                *partition,
                begun.lost,
            )
        if begun.wait > 0:
            log.info("%s[%d] waits %.1f s for its listeners to register again", *partition, begun.wait)
            return Closed(time.monotonic() + begun.wait, "for its listeners to register again")
        return FeedPartition(
            feed, opening.number, opening.lineage, begun.offset, end - 1, feed.generation, begun.begun, begun.marks
        )

    def _batches(self, held: FeedPartition, messages: Sequence[Message]) -> Iterator[SentEvents]:
        if self._doubts.about(held.partition):
            yield from self._doubtful(held, messages)
            return
        feed, now, limits = held.entry, time.monotonic(), {"most": _MOST_EVENTS, "largest": LARGEST_BATCH}
        for batch in gather(raw(messages), held.read, held.marks, ordered=feed.ordered, **limits):
            self._counters.records.labels(held.view).inc(batch.records)
            tended = held.tended.due(batch.packed.clients.keys(), feed.age, now)
            parcel = FeedParcel(held.feed_place, held.begun, held.read, batch.reached, batch.packed, tended)
            refused = with_reasons(messages, dict(batch.refused))
            live = held.read >= held.target
            held.read = batch.reached
            yield SentEvents(held, batch.reached, messages, refused, live, batch.packed, parcel)

    def _doubtful(self, held: FeedPartition, messages: Sequence[Message]) -> Iterator[SentEvents]:
        """Records to be searched: marks move only with what Redis takes, so that their events are not known yet."""
        for some in cut(messages, LARGEST_BATCH):
            for first in range(0, len(some), _MOST_EVENTS):
                found = some[first : first + _MOST_EVENTS]
                batch, _ = _as_one(held, found)
                if batch is not None:
                    self._counters.records.labels(held.view).inc(batch.records)
                    refused = with_reasons(found, dict(batch.refused))
                    yield SentEvents(held, batch.reached, found, refused, False, PackedEvents(), None)

    def _is_doubtful(self, one: SentEvents) -> bool:
        return one.parcel is None

    def _write(self, batches: Sequence[SentEvents]) -> list[Taken | PositionMoved | Rejected]:
        return self._feeds.apply_all([one.parcel for one in batches if one.parcel is not None])

    def _taken(self, one: SentEvents, answer: Taken) -> None:
        held = one.held
        self._counters.accepted.labels(held.view).inc(answer.new)
        self._counters.kept.labels(held.view).inc(answer.kept)
        live = one.live and answer.new > 0
        place = (held.view, held.lineage, held.generation)
        self._reporter.delays.stored(place, times_of_events(one.packed, live=live), live=live)

    def _trial(self, held: FeedPartition, messages: Sequence[Message]) -> Trial | None:
        batch, marks = _as_one(held, messages)
        if batch is None:
            return None

        def write(packed: PackedEvents, reached: int) -> object:
            return self._feeds.apply(held.feed_place, held.begun, held.stored, reached, packed)

        def taken() -> None:
            held.stored = held.read = batch.reached
            held.marks.update(marks)

        # A mark moves also without its event: repeated by the pipeline, the event would be condemned once more.
        marked = PackedEvents(marks=batch.packed.marks)
        return Trial(
            whole=lambda: write(batch.packed, batch.reached),
            without=lambda: write(marked, batch.reached),
            empty=lambda: write(PackedEvents(), held.stored),
            taken=taken,
        )

    def _skip(self, held: FeedPartition, reached: int) -> object:
        return self._feeds.apply(held.feed_place, held.begun, held.stored, reached, PackedEvents())

    def _probed(self, held: FeedPartition, stored: StoredPosition) -> None:  # noqa: ARG002
        self._alive[held.partition] = time.time()

    def _after_probe(self) -> None:
        for held in list(self.open.values()):
            self._alone(held.partition, self._lapse, held)

    def _lapse(self, held: FeedPartition) -> None:
        self._feeds.lapse(held.feed_place, held.begun)


def _as_one(held: FeedPartition, messages: Sequence[Message]) -> tuple[FeedBatch | None, dict[bytes, int]]:
    """All of some records as one batch, and the marks that it leads to; None if the store has them all."""
    marks = dict(held.marks)
    limits = {"most": len(messages), "largest": sum(map(len, messages))}
    found = gather(raw(messages), held.stored, marks, ordered=held.entry.ordered, **limits)
    return (found[0] if found else None), marks
