"""`tailrace check`: every mistake in an app, without running it."""

from __future__ import annotations

from tailrace.app import App
from tailrace.mistakes import Mistake, find_mistakes
from tailrace.pipeline.analysis import Analysis
from tailrace.pipeline.session import start_session
from tailrace.settings import Settings


def check(app: App, settings: Settings) -> list[Mistake]:
    """The mistakes in an app, in the order of its module."""
    session = start_session(
        app.name, slots=1, state_partitions=settings.number("state-partitions"), jars=(), quiet=True
    )
    try:
        analysis = Analysis(session)
        analysis.examine(app)
    finally:
        session.stop()
    found = [*find_mistakes(app), *analysis.mistakes]
    return sorted(found, key=lambda mistake: (mistake.place.file, mistake.place.line))
