"""Follows the commands of an app, and evaluates their queries for the partitions of this materializer.

A partition takes part while it is whole and its view has live queries. Otherwise its batches are applied as if there
were no queries. So a restore is not slowed down, and the enrolment after it finds the members.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tailrace.contracts.catalog import Catalog
from tailrace.contracts.commands import NotACommand, decode_command
from tailrace.kafka.changelogs import Partition
from tailrace.kafka.commands_topic import CommandsReader
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.queries.live_queries import LiveQueries
from tailrace.materializer.queries.partition_queries import PartitionQueries
from tailrace.materializer.views.batch import ViewBatch
from tailrace.materializer.views.partition import ViewPartition
from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.match_writer import BelievedPartition, MatchWriter
from tailrace.store.write.writer import Applied, PositionMoved, Rejected

log = logging.getLogger(__name__)


# How long, in ms, the queries of a partition rest after they have failed in a way nobody foresaw.
_REST = 10_000


def _now() -> int:
    return int(time.time() * 1000)


class Matcher:
    """The queries of all partitions. If a method raises Unavailable, close the partition."""

    def __init__(
        self,
        commands: CommandsReader,
        store: MatchWriter,
        counters: MaterializerCounters,
        clock: Callable[[], int] = _now,
    ) -> None:
        self._commands = commands
        self._store = store
        self._counters = counters
        self._clock = clock
        self._live = LiveQueries(self._counters.set_aside.labels("query").inc)
        self._partitions: dict[Partition, PartitionQueries] = {}
        self._resting: dict[Partition, int] = {}

    def take_catalog(self, catalog: Catalog | None) -> None:
        """Take the columns of the views."""
        views = {} if catalog is None else catalog.views
        self._live.set_views({name: (*view.key, *view.columns) for name, view in views.items()})
        for held in self._partitions.values():
            if held.view in self._live.views:
                held.take(self._live.views[held.view])
        self._tell()

    def follow(self) -> None:
        """Take in new commands, and end the streams that have expired."""
        for stream, value in self._commands.take():
            try:
                if value is None:
                    self._live.end(stream)
                else:
                    self._live.put(decode_command(stream, value).stream)
            except NotACommand as error:
                log.warning("a command of stream %s was passed over: %s", stream, error)
                self._counters.commands_refused.inc()
            except Exception:
                log.exception("a command of stream %s failed, and is passed over", stream)
                self._counters.set_aside.labels("command").inc()
        self._live.expire(self._clock())
        self._tell()

    def due_in(self, longest: float) -> float:
        """For how many seconds nothing is due; at most `longest`."""
        return min((queries.due_in(longest) for queries in self._partitions.values()), default=longest)

    def opened(self, held: ViewPartition) -> None:
        """A partition was opened. What an earlier owner has left of queries must not count as complete."""
        self._store.unsettle(BelievedPartition(held.view, held.number, held.lineage, held.stored, held.generation))

    def closed(self, partition: Partition) -> None:
        """A partition was closed."""
        self._partitions.pop(partition, None)

    def evaluates(self, held: ViewPartition) -> bool:
        """Whether queries have begun in a partition. If so, apply its batches here."""
        queries = self._partitions.get(held.partition)
        return queries is not None and queries.active

    def apply(self, held: ViewPartition, batch: ViewBatch) -> Applied | PositionMoved | Rejected:
        """Apply a batch, and what it means for the queries of its view, in one step.

        If queries fail in a way nobody foresaw, the partition is opened again and does without them for a while.
        """
        try:
            return self._partitions[held.partition].apply(batch)
        except Unavailable:
            raise
        except Exception:
            return self._rest(held)

    def tend(self, held: ViewPartition) -> PositionMoved | None:
        """Do what is due for the queries of a partition. PositionMoved if it must be opened again."""
        queries = self._partitions.get(held.partition)
        if queries is None:
            view = self._live.views.get(held.view)
            if view is None or not view.queries or not held.whole:
                return None
            if self._resting and self._resting.get(held.partition, 0) > self._clock():
                return None
            made = self._counters.query_messages.labels(held.view).inc
            queries = PartitionQueries(held, view, self._store, self._clock, made)
            self._partitions[held.partition] = queries
        try:
            return queries.tend()
        except Unavailable:
            raise
        except Exception:
            return self._rest(held)

    def _rest(self, held: ViewPartition) -> PositionMoved:
        """Leave the queries of a partition alone for a while. It is opened again as if it had none."""
        log.exception("%s[%d]: its queries failed; its rows go on without them for a while", *held.partition)
        self._counters.set_aside.labels("queries").inc()
        self._resting[held.partition] = self._clock() + _REST
        return PositionMoved(held.stored)

    def _tell(self) -> None:
        for view, queries in self._live.take_changed().items():
            for held in self._partitions.values():
                if held.view == view:
                    for query in queries:
                        held.changed(query)
            found = self._live.views.get(view)
            self._counters.queries.labels(view).set(0 if found is None else len(found.queries))
        self._counters.streams.set(len(self._live.streams))
