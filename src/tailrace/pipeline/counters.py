"""What the pipeline counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tailrace.pipeline.query import ViewQuery


class Counters(Collector):
    """Reads the totals of the running queries when metrics are asked for."""

    def __init__(self, queries: Sequence[ViewQuery]) -> None:
        self._queries = queries
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The metrics of every view."""
        inputs = CounterMetricFamily("tailrace_inputs", "Records read by a view.", labels=["view"])
        batches = CounterMetricFamily("tailrace_batches", "Batches that have ended.", labels=["view"])
        skipped = CounterMetricFamily("tailrace_skipped", "Records that a view skipped.", labels=["view", "reason"])
        restarts = CounterMetricFamily("tailrace_pipeline_restarts", "Failures of a query.", labels=["view"])
        live = GaugeMetricFamily("tailrace_pipeline_live", "1 while a view's query runs.", labels=["view"])
        for query in self._queries:
            name = query.build.view.name
            inputs.add_metric([name], query.progress.inputs)
            batches.add_metric([name], query.progress.batch + 1)
            for reason, count in query.progress.skipped.items():
                skipped.add_metric([name, reason], count)
            restarts.add_metric([name], query.restarts)
            live.add_metric([name], 0 if query.reasons() else 1)
        return [inputs, batches, skipped, restarts, live]
