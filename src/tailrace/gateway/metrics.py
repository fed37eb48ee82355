"""The gateway's metrics, in a registry of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tailrace.gateway.catalog import ServedCatalog
from tailrace.store.layout.stored_position import StoredPosition

_SURFACES = ("sse", "ws")
# What is written to clients: frames, and on a WebSocket the answers to what the client says.
_KINDS = ("row", "gone", "event", "ready", "reset", "progress", "close", "answer")
_DELAYS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """What the gateway counts about itself, and what the catalog says about the pipeline."""

    def __init__(self, known: ServedCatalog) -> None:
        registry = self.registry = CollectorRegistry()
        self.followers = Gauge(
            "tailrace_gateway_followers", "Keys that are followed, once per client.", registry=registry
        )
        connections = Gauge(
            "tailrace_gateway_connections", "Connections that hold a stream.", ["surface"], registry=registry
        )
        subscriptions = Gauge(
            "tailrace_gateway_subscriptions",
            "What clients follow: one per SSE connection, many per WebSocket.",
            ["surface"],
            registry=registry,
        )
        self._connections = {surface: connections.labels(surface) for surface in _SURFACES}
        self._subscriptions = {surface: subscriptions.labels(surface) for surface in _SURFACES}
        self._closed = Counter(
            "tailrace_gateway_closed",
            "Connections that ended, by reason; `client`: the client has left.",
            ["surface", "reason"],
            registry=registry,
        )
        self.channels = Gauge("tailrace_gateway_channels", "Keys that have any follower.", registry=registry)
        tasks = Gauge("tailrace_gateway_tasks", "Tasks of the event loop.", registry=registry)
        tasks.set_function(_tasks)
        self.feed_listeners = Gauge(
            "tailrace_gateway_feed_listeners", "Clients of feeds that listen here.", registry=registry
        )
        self.link_up = Gauge("tailrace_gateway_link_up", "Whether the pub/sub link is up.", registry=registry)
        frames = Counter(
            "tailrace_gateway_frames", "Frames written to clients.", ["kind", "surface"], registry=registry
        )
        sent = Counter(
            "tailrace_gateway_bytes", "Bytes of frames written to clients.", ["kind", "surface"], registry=registry
        )
        self._sent = {
            (kind, surface): (frames.labels(kind, surface), sent.labels(kind, surface))
            for kind in _KINDS
            for surface in _SURFACES
        }
        self._conflated = Counter(
            "tailrace_gateway_conflated", "Rows that slow clients were spared: a newer one came.", registry=registry
        )
        self._resets = Counter("tailrace_gateway_resets", "Resets, by reason.", ["reason"], registry=registry)
        self._refused = Counter(
            "tailrace_gateway_refused",
            "Requests refused for rights or limits, by HTTP status.",
            ["status"],
            registry=registry,
        )
        self._limited = Counter(
            "tailrace_gateway_limited", "What a limit has refused or ended, by the limit.", ["limit"], registry=registry
        )
        self._used = Gauge(
            "tailrace_gateway_used", "What clients hold of what is limited, by the limit.", ["limit"], registry=registry
        )
        self._lookups = Counter("tailrace_gateway_lookups", "Lookups, by HTTP status.", ["status"], registry=registry)
        self._listings = Counter(
            "tailrace_gateway_listings", "Pages of listings, by HTTP status.", ["status"], registry=registry
        )
        self.waits = Gauge("tailrace_gateway_waits", "Lookups and listings that wait.", registry=registry)
        events = Counter(
            "tailrace_gateway_events_in",
            "Events that clients sent, by what became of them.",
            ["result"],
            registry=registry,
        )
        self._events_in = (events.labels("written"), events.labels("unwritten"))
        self._set_aside = Counter(
            "tailrace_gateway_set_aside",
            "What could not be read, or failed in a way nobody foresaw, and was passed over: the log has each.",
            ["what"],
            registry=registry,
        )
        self.reconnects = Counter(
            "tailrace_gateway_link_reconnects", "Times that the pub/sub link was replaced.", registry=registry
        )
        self.repaired = Counter(
            "tailrace_gateway_repaired", "Rows and events that pub/sub lost and a read made up for.", registry=registry
        )
        self.delay = Histogram(
            "tailrace_gateway_delay_seconds",
            "From an input's timestamp until its row leaves for the clients.",
            buckets=_DELAYS,
            registry=registry,
        )
        self._store = _StoreCollector(known)
        registry.register(self._store)

    def watch(self, name: str, meaning: str, count: Callable[[], float]) -> None:
        """Show how many of something there are now."""
        Gauge(f"tailrace_gateway_{name}", meaning, registry=self.registry).set_function(count)

    def opened(self, surface: str) -> None:
        self._connections[surface].inc()

    def closed(self, surface: str, reason: str) -> None:
        self._connections[surface].dec()
        self._closed.labels(surface, reason).inc()

    def subscribed(self, surface: str, change: int) -> None:
        """Count subscriptions: 1 for one that begins, -1 for one that ends."""
        self._subscriptions[surface].inc(change)

    def sent(self, kind: str, frames: int, size: int, surface: str = "sse") -> None:
        """Count frames of one kind that were written."""
        count, volume = self._sent[kind, surface]
        count.inc(frames)
        volume.inc(size)

    def conflated(self, rows: int) -> None:
        self._conflated.inc(rows)

    def reset(self, reason: str) -> None:
        self._resets.labels(reason).inc()

    def set_aside(self, what: str) -> None:
        """Count something that failed and was passed over. The caller has logged it."""
        self._set_aside.labels(what).inc()

    def refused(self, status: int) -> None:
        self._refused.labels(str(status)).inc()

    def limited(self, limit: str) -> None:
        self._limited.labels(limit).inc()

    def used(self, limit: str, count: Callable[[], float]) -> None:
        """Show how much clients hold now of what a limit bounds."""
        self._used.labels(limit).set_function(count)

    def lookup(self, status: int) -> None:
        self._lookups.labels(str(status)).inc()

    def listing(self, status: int) -> None:
        self._listings.labels(str(status)).inc()

    def events_in(self, written: int, unwritten: int) -> None:
        for count, number in zip(self._events_in, (written, unwritten), strict=True):
            count.inc(number)

    def stored(self, found: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Note how far the partitions are."""
        self._store.found = found

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # asked outside the loop
        return 0


class _StoreCollector(Collector):
    """What the store says: progress records of the pipeline, and offsets as last read."""

    def __init__(self, known: ServedCatalog) -> None:
        self._known = known
        self.found: Mapping[tuple[str, int], StoredPosition] = {}

    def collect(self) -> Iterator[Metric]:
        inputs = CounterMetricFamily("tailrace_inputs", "Records that the pipeline has read.", labels=["view"])
        skipped = CounterMetricFamily(
            "tailrace_skipped", "Records that the pipeline could not use, and skipped.", labels=["view", "reason"]
        )
        lost = CounterMetricFamily(
            "tailrace_lost", "Records that retention removed before the pipeline read them.", labels=["view"]
        )
        modes = GaugeMetricFamily("tailrace_pipeline_mode", "1 for the mode of a view.", labels=["view", "mode"])
        for name, progress in self._known.progress.items():
            inputs.add_metric([name], progress.inputs)
            lost.add_metric([name], progress.lost)
            if progress.mode:
                modes.add_metric([name, progress.mode], 1)
            for reason, count in progress.skipped.items():
                skipped.add_metric([name, reason], count)
        generations = GaugeMetricFamily("tailrace_generation", "The build of a view.", labels=["view"])
        for name, view in self._known.views.items():
            generations.add_metric([name], view.generation)
        offsets = GaugeMetricFamily(
            "tailrace_stored_offset", "Changelog offset that Redis holds.", labels=["view", "partition"]
        )
        for (name, partition), stored in self.found.items():
            if stored.offset is not None:
                offsets.add_metric([name, str(partition)], stored.offset)
        yield from (inputs, skipped, lost, modes, generations, offsets)
