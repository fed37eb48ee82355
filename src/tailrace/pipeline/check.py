"""`tailrace check`: every mistake in an app, without running it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tailrace.app import App
from tailrace.checking import find_mistakes
from tailrace.checking.sources import records
from tailrace.dev import jars
from tailrace.mistakes import Mistake
from tailrace.pipeline.analysis import Analysis
from tailrace.pipeline.registered import Registered
from tailrace.pipeline.session import start_session
from tailrace.settings import Settings


def check(app: App, settings: Settings) -> list[Mistake]:
    """The mistakes in an app, in the order of its module."""
    told = find_mistakes(app)
    found = [*told, *examined(app, settings, told).mistakes]
    return sorted(found, key=lambda mistake: (mistake.place.file, mistake.place.line))


def examined(app: App, settings: Settings, told: Sequence[Mistake] = ()) -> Analysis:
    """What Spark's analysis says of an app, from a session that is started and stopped for it."""
    state = settings.number("state-partitions")
    # Only Avro schemas are read by code that PySpark lacks.
    with_avro = any("avro" in (records(topic).format, records(topic).key_format) for topic in app.topics)
    directory = Path(settings.text("jars")) if settings.text("jars") else None
    needed = jars.ensure("spark", directory) if with_avro else ()
    with tempfile.TemporaryDirectory(prefix="tailrace-check-", ignore_cleanup_errors=True) as scratch:
        session = start_session(
            app.name, slots=1, state_partitions=state, jars=needed, scratch=Path(scratch), quiet=True
        )
        try:
            analysis = Analysis(session, Registered(settings.text("registry")))
            analysis.examine(app, told)
        finally:
            session.stop()
    return analysis
