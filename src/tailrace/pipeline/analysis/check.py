"""`tailrace check`: every mistake in an app, without running it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.avro.registry import Registry
from tailrace.contracts.catalog import APP_RECORD, Catalog
from tailrace.declarations.app import App
from tailrace.declarations.checks import find_mistakes
from tailrace.declarations.checks.sources import records
from tailrace.declarations.mistakes import Mistake
from tailrace.declarations.views import View
from tailrace.dev import jars
from tailrace.errors import DeclarationError
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import read_records
from tailrace.kafka.topics import Topics
from tailrace.pipeline.analysis.analysis import Analysis
from tailrace.pipeline.analysis.definitions import definition
from tailrace.pipeline.analysis.resources import slots
from tailrace.pipeline.lifecycle.next_start import consequences
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.spark.jvm_parts import chosen
from tailrace.pipeline.spark.session import start_session
from tailrace.settings import Settings


def check(app: App, settings: Settings, servers: str = "") -> tuple[list[Checked], list[str]]:
    """What an app runs, and what its next start would build anew, if there are brokers to ask for what runs now.

    Raises DeclarationError with its mistakes, in the order of its module.
    """
    told = find_mistakes(app)
    analysis = examined(app, settings, told)
    if found := [*told, *analysis.mistakes]:
        raise DeclarationError(sorted(found, key=lambda mistake: (mistake.place.file, mistake.place.line)))
    return report(app, analysis, settings), _next_start(app, analysis, settings, servers) if servers else []


def _next_start(app: App, analysis: Analysis, settings: Settings, servers: str) -> list[str]:
    brokers = Brokers.of(settings, servers)
    records = read_records(brokers, app.name, Topics(brokers))
    catalog = Catalog.decode(records[APP_RECORD]) if APP_RECORD in records else None
    state = settings.number("state-partitions")
    definitions = {view.name: definition(view, state, analysis.described[view.name].texts) for view in app.views}
    return consequences(app, definitions, catalog)


@dataclass(frozen=True)
class Checked:
    """What is to be run of one output: its kind, mode, task slots and columns."""

    name: str
    kind: str
    mode: str
    slots: int
    columns: str


def report(app: App, analysis: Analysis, settings: Settings) -> list[Checked]:
    """What a good app runs, where every source topic has the partitions that new ones get."""
    partitions, state = settings.number("partitions"), settings.number("state-partitions")
    found = []
    for output in app.outputs:
        described = analysis.described[output.name]
        found.append(
            Checked(
                output.name,
                output.kind if isinstance(output, View) else "feed",
                output.mode,
                slots(output, analysis.types, {}, partitions, state),
                ", ".join(f"{column.name} {column.type}" for column in (*described.key, *described.columns)),
            )
        )
    return found


def examined(app: App, settings: Settings, told: Sequence[Mistake] = ()) -> Analysis:
    """What Spark's analysis says of an app, from a session that is started and stopped for it."""
    state, registry = settings.number("state-partitions"), Registry.of(settings)
    # Only Avro schemas are read by code that PySpark lacks.
    with_avro = any("avro" in (records(topic).format, records(topic).key_format) for topic in app.topics)
    directory = Path(settings.text("jars")) if settings.text("jars") else None
    needed = jars.ensure("spark", directory) if with_avro else ()
    with tempfile.TemporaryDirectory(prefix="tailrace-check-", ignore_cleanup_errors=True) as scratch:
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
            analysis = Analysis(session, RegistrySchemas(registry))
            analysis.examine(app, told)
        finally:
            session.stop()
    return analysis
