"""What the pipeline counts."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tailrace.pipeline.lifecycle.query import MODES
from tailrace.pipeline.pipeline import Pipeline


class PipelineMetrics(Collector):
    """Reads the totals of the running queries when metrics are asked for."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The metrics of every view."""
        inputs = CounterMetricFamily("tailrace_inputs", "Records read by a view.", labels=["view"])
        batches = CounterMetricFamily("tailrace_batches", "Batches that have ended.", labels=["view"])
        skipped = CounterMetricFamily("tailrace_skipped", "Records that a view skipped.", labels=["view", "reason"])
        restarts = CounterMetricFamily("tailrace_pipeline_restarts", "Failures of a query.", labels=["view"])
        lost = CounterMetricFamily(
            "tailrace_lost", "Records that retention removed before a view read them.", labels=["view"]
        )
        mode = GaugeMetricFamily("tailrace_pipeline_mode", "1 for the mode of a view.", labels=["view", "mode"])
        degraded = GaugeMetricFamily(
            "tailrace_degraded", "1 while some rows of a view may be stale; /health/ready says why.", labels=["view"]
        )
        partitions = GaugeMetricFamily("tailrace_topic_partitions", "Partitions of a topic.", labels=["topic"])
        state = GaugeMetricFamily(
            "tailrace_state_bytes",
            "Size of a view's state when its last batch ended: what it is for (rows or dedupe), on disk and in memory.",
            labels=["view", "part", "place"],
        )
        live = GaugeMetricFamily("tailrace_pipeline_live", "1 while a view's query runs.", labels=["view"])
        for name, query in list(self._pipeline.queries.items()):
            inputs.add_metric([name], query.progress.inputs)
            batches.add_metric([name], query.progress.batch + 1)
            for reason, count in query.progress.skipped.items():
                skipped.add_metric([name, reason], count)
            restarts.add_metric([name], query.restarts)
            lost.add_metric([name], query.progress.lost)
            for one in MODES:
                mode.add_metric([name, one], query.progress.mode == one)
            live.add_metric([name], 0 if query.reasons() else 1)
            degraded.add_metric([name], 1 if query.progress.degraded else 0)
            for part, places in query.progress.state.items():
                for place, size in places.items():
                    state.add_metric([name, part, place], size)
        for topic, count in self._pipeline.partitions().items():
            partitions.add_metric([topic], count)
        letters = CounterMetricFamily(
            "tailrace_dead_letters", "Records that can't be used.", labels=["topic", "reason"]
        )
        for topic, search in list(self._pipeline.dead_letters.items()):
            for reason, count in search.progress.skipped.items():
                letters.add_metric([topic, reason], count)
        aside = CounterMetricFamily(
            "tailrace_pipeline_set_aside",
            "Records of the catalog topic that could not be read, or failed, and were passed over: the log has each.",
            labels=["what"],
        )
        for what, count in self._pipeline.set_aside().items():
            aside.add_metric([what], count)
        return [aside, letters, inputs, batches, skipped, restarts, lost, mode, live, degraded, partitions, state]
