"""`tailrace explain`: how a view is computed, from its topics to its changelog."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tailrace.avro.registry import Registry
from tailrace.declarations.app import App
from tailrace.declarations.checks import find_mistakes
from tailrace.dev import jars
from tailrace.errors import DeclarationError, TopicError
from tailrace.kafka.brokers import Brokers
from tailrace.pipeline.analysis.analysis import Analysis
from tailrace.pipeline.analysis.check import report
from tailrace.pipeline.changelog.changelog import QueryContext, changelog_frame
from tailrace.pipeline.lifecycle.generations import Build
from tailrace.pipeline.source.reading import readings
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.spark.jvm_parts import chosen
from tailrace.pipeline.spark.session import start_session
from tailrace.pipeline.spark.spark_kafka import SparkKafka
from tailrace.pipeline.view.plan import state_stages
from tailrace.settings import Settings

_OPTIMIZED = "== Optimized Logical Plan =="


def explain(app: App, name: str, settings: Settings) -> str:
    """The plan of a view or feed; raises DeclarationError for an app with mistakes."""
    output = next((output for output in app.outputs if output.name == name), None)
    if output is None:
        known = ", ".join(output.name for output in app.outputs)
        raise TopicError(f"app {app.name!r}: expected one of {known}, got {name!r}")
    if mistakes := find_mistakes(app):
        raise DeclarationError(mistakes)
    registry = Registry.of(settings)
    directory = Path(settings.text("jars")) if settings.text("jars") else None
    needed = jars.ensure("spark", directory)
    state = settings.number("state-partitions")
    with tempfile.TemporaryDirectory(prefix="tailrace-explain-", ignore_cleanup_errors=True) as scratch:
        session = start_session(
            app.name,
            slots=1,
            state_partitions=state,
            jars=needed,
            scratch=Path(scratch),
            quiet=True,
            parts=chosen(settings.text("jvm-parts")),
        )
        try:
            registry_schemas = RegistrySchemas(registry)
            analysis = Analysis(session, registry_schemas)
            analysis.examine(app)
            if analysis.mistakes:
                raise DeclarationError(analysis.mistakes)
            context = QueryContext(
                SparkKafka(Brokers("localhost:9092")), "tailrace", 60, analysis.types, registry_schemas
            )
            frame = changelog_frame(session, Build(output, 1, Path(scratch)), context)
            mode = session._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")  # type: ignore[union-attr]
            told = str(frame._jdf.queryExecution().explainString(mode))
        finally:
            session.stop()
    checked = next(one for one in report(app, analysis, settings) if one.name == name)
    found = readings(output, analysis.types, registry_schemas)
    lines = [
        f"{checked.kind} {name}, declared at {output.place}",
        f"mode          {checked.mode}",
        f"task slots    {checked.slots} with {settings.text('partitions')} partitions per topic",
        f"state         {state_stages(output, found)} times {state} partitions",
        *(f"reads         {reading.topic.name} ({'table' if reading.is_table else 'events'})" for _, reading in found),
        f"writes        {output.changelog}, by {', '.join(output.row_key)}",
        f"columns       {checked.columns}",
        "",
        told[told.index(_OPTIMIZED) :].strip() if _OPTIMIZED in told else told.strip(),
    ]
    return "\n".join(lines)
