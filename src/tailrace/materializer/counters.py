"""The metrics of the materializer."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tailrace.contracts.freshness import freshness
from tailrace.materializer.delays import Delays


class MaterializerCounters:
    """All metrics of one materializer, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        view = ["view"]
        self.records = Counter("tailrace_materializer_records", "Changelog records read.", view, registry=self.registry)
        self.accepted = Counter(
            "tailrace_materializer_accepted", "Changes that were newer than the store.", view, registry=self.registry
        )
        self.dead_letters = Counter(
            "tailrace_materializer_dead_letters",
            "Changelog records that can never be applied, kept as dead letters.",
            view,
            registry=self.registry,
        )
        self.reopened = Counter(
            "tailrace_materializer_reopened",
            "Times a partition was sought anew by the position in Redis.",
            view,
            registry=self.registry,
        )
        self.kept = Counter(
            "tailrace_materializer_kept", "Events of feeds that were kept for a client.", view, registry=self.registry
        )
        self.lost = Counter(
            "tailrace_materializer_lost",
            "Events of feeds that retention removed before they were read.",
            view,
            registry=self.registry,
        )
        self.expired = Counter(
            "tailrace_materializer_expired", "Tombstones added for rows that expired.", registry=self.registry
        )
        self.pruned = Counter(
            "tailrace_materializer_pruned", "Tombstones forgotten in Redis.", view, registry=self.registry
        )
        self.handed_over = Counter(
            "tailrace_materializer_handed_over",
            "Times a partition was handed over to the next build.",
            view,
            registry=self.registry,
        )
        self.streams = Gauge("tailrace_materializer_streams", "Live streams.", registry=self.registry)
        self.queries = Gauge("tailrace_materializer_queries", "Distinct live queries.", view, registry=self.registry)
        self.query_messages = Counter(
            "tailrace_materializer_query_messages",
            "Messages about rows that came, changed or went in queries.",
            view,
            registry=self.registry,
        )
        self.commands_refused = Counter(
            "tailrace_materializer_commands_refused",
            "Records of the commands topic that are no commands.",
            registry=self.registry,
        )
        self.set_aside = Counter(
            "tailrace_materializer_set_aside",
            "What could not be read, or failed in a way nobody foresaw, and was passed over: the log has each.",
            ["what"],
            registry=self.registry,
        )
        self.unavailable = Counter(
            "tailrace_materializer_redis_unavailable",
            "Times Redis could not be reached or written.",
            registry=self.registry,
        )
        self.offset = Gauge(
            "tailrace_materializer_offset", "Offset stored in Redis.", ["view", "partition"], registry=self.registry
        )
        self.lag = Gauge(
            "tailrace_materializer_lag",
            "Records between Redis and the end.",
            ["view", "partition"],
            registry=self.registry,
        )

    def behind(self, view: str, partition: int, records: int) -> None:
        """Set how many records of a partition are not in Redis yet."""
        self.lag.labels(view, str(partition)).set(max(0, records))

    def show(self, delays: Delays) -> None:
        """Show how long rows took in the last minute."""
        self.registry.register(_DelayCollector(delays))


class _DelayCollector(Collector):
    """The delays of the last minute, by view. A view without new rows has none."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays

    def collect(self) -> Iterator[Metric]:
        """The samples of this moment."""
        found = GaugeMetricFamily(
            "tailrace_delay_seconds",
            "From a source record's timestamp until its row is in Redis, in the last minute; quantile 1: the longest.",
            labels=["view", "quantile"],
        )
        for view, one in self._delays.reports({}).items():
            delay = freshness([one], one.lineage, one.generation, one.at).delay
            if delay is not None:
                found.add_metric([view, "0.5"], delay.p50_ms / 1000)
                found.add_metric([view, "1"], delay.max_ms / 1000)
        yield found
