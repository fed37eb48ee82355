"""Mistakes in views and feeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace.declarations import durations
from tailrace.declarations.app import App
from tailrace.declarations.checks.sources import subject_of
from tailrace.declarations.mistakes import Mistake, of_column_name, of_duration, of_name
from tailrace.declarations.topics import Table, Topic
from tailrace.declarations.views import (
    JOIN,
    LATEST,
    MICRO_BATCH,
    REAL_TIME,
    WINDOW_END,
    WINDOW_START,
    Changelog,
    Feed,
    View,
)

_HOW = ("inner", "left", "outer")
_RETAIN = ("listening", "always")


def of_outputs(app: App) -> Iterator[Mistake]:
    """Mistakes in declarations with app.view, app.latest, app.join and app.feed."""
    names: dict[str, View | Feed] = {}
    changelogs: dict[str, View | Feed] = {}
    read = {source.name for source in app.topics}
    for output in app.outputs:
        what = "view" if isinstance(output, View) else "feed"
        subject = f"{what} {output.name!r}"
        yield from of_name(output.place, what, output.name)
        if (first := names.setdefault(output.name, output)) is not output:
            yield Mistake(
                output.place,
                subject,
                f"each {what} declared once",
                f"a second one of this name (the first is at {first.place})",
                "Rename one of them.",
            )
        elif (first := changelogs.setdefault(output.changelog, output)) is not output:
            yield Mistake(
                output.place,
                subject,
                "a changelog topic of its own",
                f"{output.changelog!r}, which is the changelog of {first.name!r} at {first.place}",
                "Give one of them another name with to=….",
            )
        if output.changelog != output.name:
            yield from of_name(output.place, "changelog", output.changelog)
        if output.changelog in read:
            yield Mistake(
                output.place,
                subject,
                "a changelog topic that is not declared as a topic or table",
                f"{output.changelog!r}, which is",
                "Give the changelog another name with to=…; to read a view, name the view itself as the source.",
            )
        if output.mode not in (REAL_TIME, MICRO_BATCH):
            yield Mistake(
                output.place, subject, f"the mode {REAL_TIME} or {MICRO_BATCH}", repr(output.mode), "Choose one."
            )
        yield from _of_view(output, subject) if isinstance(output, View) else _of_feed(output, subject)
        yield from _of_columns(output, subject)


def fits(output: View | Feed) -> bool:
    """Whether an output has sources that its kind can be computed from."""
    if isinstance(output, View) and output.kind == JOIN:
        return len(output.sources) > 1 and all(
            isinstance(source, Table | Changelog) and len(source.key) == len(output.key) for _, source in output.sources
        )
    kinds = (Topic, Table, Changelog) if isinstance(output, View) and output.kind == LATEST else (Topic,)
    return isinstance(output.source, kinds)


def _of_view(view: View, subject: str) -> Iterator[Mistake]:
    if view.kind == JOIN:
        yield from _of_join(view, subject)
        return
    if view.kind == LATEST:
        given: object = view.source
        if not isinstance(given, Topic | Table | Changelog):
            yield _bad_source(view, subject, "a topic, a table or a view", given)
        elif not isinstance(view.source, Topic) and view.key != view.source.key:
            yield Mistake(
                view.place,
                subject,
                f"the key of the {subject_of(view.source)}: {', '.join(view.source.key)}",
                ", ".join(view.key),
                "Leave key=… out: a row of a table can't be found by something else without leaving the old place.",
            )
    elif not isinstance(view.source, Topic):
        yield _bad_source(
            view, subject, "a topic, because an aggregate can't take back what it has counted", view.source
        )
    if view.window is not None:
        window = view.window
        for name, text in (("window", window.size), ("slide", window.slide), ("keep", window.keep)):
            yield from of_duration(view.place, subject, name, text)
        for name, text in (("late", window.late), ("ahead", window.ahead)):
            yield from of_duration(view.place, subject, name, text, zero=True)
        if window.slide is not None and _seconds(window.slide) > _seconds(window.size):
            remedy = "Correct slide=…: windows further apart than they are long would leave events out."
            expected = f"slide=… of at most the window's {window.size}"
            yield Mistake(view.place, subject, expected, repr(window.slide), remedy)


def _seconds(text: str) -> float:
    """The seconds of a duration; 0 for a text that is reported as a mistake of its own."""
    try:
        return durations.seconds(text)
    except (ValueError, TypeError):
        return 0.0


def _of_join(view: View, subject: str) -> Iterator[Mistake]:
    if len(view.sources) < 2:
        remedy = 'Such as app.join(name, {"movie": movies, "score": scores}).'
        yield Mistake(view.place, subject, "two tables or more", str(len(view.sources)), remedy)
    if view.how not in _HOW:
        yield Mistake(view.place, subject, f"how=… out of {', '.join(_HOW)}", repr(view.how), "Choose one of these.")
    for alias, source in view.sources:
        yield from of_column_name(view.place, subject, alias)
        if alias in view.key:
            remedy = "Give the table another name in the join."
            yield Mistake(view.place, subject, "a name that is no key column", repr(alias), remedy)
        if not isinstance(source, Table | Changelog):
            yield _bad_source(view, subject, "tables or views", source)
        elif len(source.key) != len(view.key):
            yield Mistake(
                view.place,
                subject,
                f"tables with the same key as {view.sources[0][0]!r}: {', '.join(view.key)}",
                f"{alias!r} with the key {', '.join(source.key)}",
                "Join tables that have the same key.",
            )


def _of_feed(feed: Feed, subject: str) -> Iterator[Mistake]:
    given: object = feed.source
    if not isinstance(given, Topic):
        yield _bad_source(feed, subject, "a topic, because a feed is made of events", given)
    yield from of_duration(feed.place, subject, "hold", feed.hold, zero=True)
    if feed.retain not in _RETAIN:
        expected = f"retain=… out of {', '.join(_RETAIN)}"
        yield Mistake(feed.place, subject, expected, repr(feed.retain), "Choose one of these.")
    length: object = feed.length
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        yield Mistake(feed.place, subject, "a whole number above zero", f"length={length!r}", "Correct length=….")
    age: object = feed.age
    if age is None:
        yield Mistake(feed.place, subject, durations.EXPECTED, "age=None", "Correct age=….")
    yield from of_duration(feed.place, subject, "age", feed.age)


def _bad_source(output: View | Feed, subject: str, expected: str, got: object) -> Mistake:
    known = isinstance(got, Topic | Table | Changelog)
    told = subject_of(got) if known else repr(got)  # type: ignore[arg-type]
    remedy = "Declare one with app.topic(…)" + (
        ", or use app.latest(…) or app.join(…), which follow the rows of tables and views." if known else "."
    )
    return Mistake(output.place, subject, expected, told, remedy)


def _of_columns(output: View | Feed, subject: str) -> Iterator[Mistake]:
    windowed = isinstance(output, View) and output.window is not None
    if not output.key and not windowed and not (isinstance(output, View) and output.kind == JOIN):
        yield Mistake(
            output.place, subject, "a key", "none", 'Say which column a row is found by, such as key="movie_id".'
        )
    for name in output.key:
        yield from of_column_name(output.place, subject, name)
    if not isinstance(output.columns, Mapping):
        return
    if not output.columns:
        yield Mistake(output.place, subject, "at least one column", "none", 'Such as columns={"ratings": "count(*)"}.')
    for name in output.columns:
        yield from of_column_name(output.place, subject, name)
    taken = {*output.row_key, *((WINDOW_START, WINDOW_END) if windowed else ())}
    for name in sorted(taken & set(output.columns)):
        yield Mistake(
            output.place,
            subject,
            "each column once",
            f"{name!r} both in key and in columns",
            "Leave it out of columns: key columns are always part of the row.",
        )
