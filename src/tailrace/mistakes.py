"""Mistakes in declarations, each with its place, what was expected and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.app import App
from tailrace.place import Place
from tailrace.topics import Dedupe, Topic, WithColumns
from tailrace.views import View

# Formats of a single value, which a record key may have as well.
PLAIN_FORMATS = ("string", "long", "double", "bytes")
FORMATS = ("json", "avro", *PLAIN_FORMATS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


@dataclass(frozen=True)
class Mistake:
    """One mistake, told so that the reader can mend it."""

    place: Place
    subject: str
    expected: str
    got: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.subject}: expected {self.expected}, got {self.got}\n    {self.remedy}"


def find_mistakes(app: App) -> list[Mistake]:
    """The mistakes that can be seen without Spark; the pipeline's analysis finds those in SQL and schemas."""
    return [*_of_app(app), *_of_topics(app), *_of_steps(app), *_of_views(app)]


def _of_app(app: App) -> Iterator[Mistake]:
    if not _NAME.fullmatch(app.name):
        yield _bad_name(app.place, "app", app.name)
    if not app.views:
        yield Mistake(
            app.place,
            f"app {app.name!r}",
            "at least one view",
            "none",
            "Declare one: app.view(name, topic, key=…, columns=…).",
        )


def _of_topics(app: App) -> Iterator[Mistake]:
    seen: dict[str, Topic] = {}
    for topic in app.topics:
        subject = f"topic {topic.name!r}"
        if not _NAME.fullmatch(topic.name):
            yield _bad_name(topic.place, "topic", topic.name)
        yield from _of_formats(topic, subject)
        if (first := seen.setdefault(topic.name, topic)) is not topic:
            yield Mistake(
                topic.place,
                subject,
                "each topic declared once",
                f"a second declaration (the first is at {first.place})",
                "Keep one of them and use it for every view.",
            )


def _of_formats(topic: Topic, subject: str) -> Iterator[Mistake]:
    if topic.format not in FORMATS:
        expected = f"a format out of {', '.join(FORMATS)}"
        yield Mistake(topic.place, subject, expected, repr(topic.format), "Choose one of these.")
    elif topic.format == "avro":
        if topic.schema is None:
            remedy = 'Give schema="ratings.avsc", or the schema itself as JSON text.'
            yield Mistake(topic.place, subject, "an Avro schema", "none", remedy)
        if topic.value is not None:
            remedy = "Leave value=… out: the columns are those of the Avro schema."
            yield Mistake(topic.place, subject, "schema=… alone", f"value={topic.value!r}", remedy)
    else:
        if topic.value is None:
            remedy = 'Such as value="movie_id long, rating double".'
            yield Mistake(topic.place, subject, "a schema of the value", "none", remedy)
        if topic.schema is not None:
            remedy = 'Describe the value with value=…, or choose format="avro".'
            got = f"schema=… with the format {topic.format!r}"
            yield Mistake(topic.place, subject, "schema=… with the format 'avro' only", got, remedy)
    if topic.key_format not in PLAIN_FORMATS:
        expected = f"a key_format out of {', '.join(PLAIN_FORMATS)}"
        yield Mistake(topic.place, subject, expected, repr(topic.key_format), "Choose one of these.")


def _of_views(app: App) -> Iterator[Mistake]:
    names: dict[str, View] = {}
    changelogs: dict[str, View] = {}
    sources = {view.source.name for view in app.views}
    for view in app.views:
        subject = f"view {view.name!r}"
        if not _NAME.fullmatch(view.name):
            yield _bad_name(view.place, "view", view.name)
        if (first := names.setdefault(view.name, view)) is not view:
            yield Mistake(
                view.place,
                subject,
                "each view declared once",
                f"a second view of this name (the first is at {first.place})",
                "Rename one of them.",
            )
        elif (first := changelogs.setdefault(view.changelog, view)) is not view:
            yield Mistake(
                view.place,
                subject,
                "a changelog topic of its own",
                f"{view.changelog!r}, which is the changelog of view {first.name!r} at {first.place}",
                "Give one of them another name with to=….",
            )
        if view.changelog != view.name and not _NAME.fullmatch(view.changelog):
            yield _bad_name(view.place, "changelog", view.changelog)
        if view.changelog in sources:
            yield Mistake(
                view.place,
                subject,
                "a changelog topic that no view reads",
                f"{view.changelog!r}, which is also a source topic",
                "Give the changelog another name with to=….",
            )
        yield from _of_columns(view, subject)


def _of_columns(view: View, subject: str) -> Iterator[Mistake]:
    if not view.key:
        yield Mistake(
            view.place, subject, "a key", "none", 'Say which column a row is found by, such as key="movie_id".'
        )
    if not view.columns:
        yield Mistake(view.place, subject, "at least one column", "none", 'Such as columns={"ratings": "count(*)"}.')
    for name in (*view.key, *view.columns):
        yield from _of_column_name(view.place, subject, name)
    for name in sorted(set(view.key) & set(view.columns)):
        yield Mistake(
            view.place,
            subject,
            "each column once",
            f"{name!r} both in key and in columns",
            "Leave it out of columns: key columns are always part of the row.",
        )


def _of_steps(app: App) -> Iterator[Mistake]:
    """Of the columns that steps add; a step that several views share is told once."""
    steps = dict.fromkeys((view.source.name, step) for view in app.views for step in view.source.steps)
    for topic, step in steps:
        if isinstance(step, WithColumns):
            for name, _ in step.columns:
                yield from _of_column_name(step.place, f"topic {topic!r}", name)
        elif isinstance(step, Dedupe) and not step.by:
            remedy = 'Say which column tells a repeated event, such as dedupe(by="message_id").'
            yield Mistake(step.place, f"topic {topic!r}", "a column to dedupe by", "none", remedy)
    for source in dict.fromkeys(view.source for view in app.views):
        found = [step for step in source.steps if isinstance(step, Dedupe)]
        for step in found[1:]:
            got = f"a second one (the first is at {found[0].place})"
            remedy = "Keep one of them; it may have several columns."
            yield Mistake(step.place, f"topic {source.name!r}", "one dedupe at most", got, remedy)


def _of_column_name(place: Place, subject: str, name: str) -> Iterator[Mistake]:
    if not _COLUMN.fullmatch(name):
        yield Mistake(place, subject, "a column name of letters, digits and _", repr(name), "Rename the column.")
    elif name.startswith("_"):
        yield Mistake(
            place,
            subject,
            "a column name that starts with a letter",
            f"{name!r}; names with a leading _ are for record metadata",
            f'Rename the column; .with_columns(name="{name}") gives a metadata column a name of its own.',
        )


def _bad_name(place: Place, what: str, name: str) -> Mistake:
    return Mistake(
        place,
        what,
        "a name of letters, digits, '.', '_' and '-', starting with a letter or digit, at most 200 long",
        repr(name),
        f"Rename the {what}.",
    )
