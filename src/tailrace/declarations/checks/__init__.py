"""Mistakes that can be seen without Spark; the pipeline's analysis finds those in SQL and schemas."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.declarations.app import App
from tailrace.declarations.checks.outputs import of_outputs
from tailrace.declarations.checks.sources import of_sources
from tailrace.declarations.mistakes import Mistake, of_name


def find_mistakes(app: App) -> list[Mistake]:
    """The mistakes in an app, declaration by declaration."""
    return [*_of_app(app), *of_sources(app), *of_outputs(app)]


def _of_app(app: App) -> Iterator[Mistake]:
    yield from of_name(app.place, "app", app.name)
    if not app.outputs:
        yield Mistake(
            app.place,
            f"app {app.name!r}",
            "at least one view or feed",
            "none",
            "Declare one: app.view(name, topic, key=…, columns=…).",
        )
