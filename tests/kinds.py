"""Views of every kind, declared once per mode; `folds` says what they must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from histories import EVENTS
from tailrace import App, Table, Topic
from tailrace.declarations.views import MICRO_BATCH, REAL_TIME, Feed, View

MODES = (REAL_TIME, MICRO_BATCH)
EVENT = "k string, n long, x double, s string, note string, id string, at long"
FEED = "feed"


COUNTS = {"events": "count(*)", "total": "sum(n)"}


@dataclass(frozen=True)
class Kinds:
    """An app, and what it declares by kind and mode."""

    app: App
    outputs: Mapping[tuple[str, str], View | Feed]


def module(declared: str, fresh: str, modes: Sequence[str] = MODES) -> str:
    """The text of a user's module that declares these kinds."""
    path = str(Path(__file__).parent)
    return (
        f"import sys\nsys.path.insert(0, {path!r})\nimport kinds\n"
        f"app = kinds.{declared}({fresh!r}, {list(modes)!r}).app\n"
    )


def over_events(fresh: str = "", modes: Sequence[str] = MODES) -> Kinds:
    """Every kind of view and feed over a topic of events."""
    app = App(f"over-events{fresh}")
    events = _events(app, fresh)
    found: dict[tuple[str, str], View | Feed] = {}
    for mode in modes:
        name = _named(fresh, mode)
        found["aggregate", mode] = app.view(
            name("aggregate"),
            events.where("n is null or n <> 13"),
            key="k",
            columns={
                "mean": "avg(x)",
                "events": "count(*)",
                "known": "count(n)",
                "least": "min(n)",
                "greatest": "max(s)",
                "total": "sum(n)",
            },
            mode=mode,
        )
        found["last", mode] = app.latest(name("last"), events.with_columns(client="_key"), key="client", mode=mode)
        found["last-of", mode] = app.latest(
            name("last-of"), events, key="k", columns={"n": "n", "s": "s", "twice": "n * 2"}, mode=mode
        )
        found["deduped", mode] = app.view(
            name("deduped"), events.dedupe(by="id").where("n is not null"), key=("k", "s"), columns=COUNTS, mode=mode
        )
        found["deduped-by-header", mode] = app.view(
            name("deduped-by-header"), events.dedupe(header="message-id"), key="k", columns=COUNTS, mode=mode
        )
        _with_time(app, found, events, fresh, mode)
    return Kinds(app, found)


def few_events(fresh: str = "", modes: Sequence[str] = MODES) -> Kinds:
    """The feed of `over_events`, and its views that know a time."""
    app = App(f"over-events{fresh}")
    events = _events(app, fresh)
    found: dict[tuple[str, str], View | Feed] = {}
    for mode in modes:
        _with_time(app, found, events, fresh, mode)
    return Kinds(app, found)


def over_tables(fresh: str = "", modes: Sequence[str] = MODES) -> Kinds:
    """Every kind of view over tables and over other views."""
    app = App(f"over-tables{fresh}")
    events = _events(app, fresh)
    a = app.table(f"a{fresh}", key="id", value="title string, year int")
    b = app.table(f"b{fresh}", key="id", value="score double")
    c = app.table(f"c{fresh}", key="id", value="tag string, more boolean")
    found: dict[tuple[str, str], View | Feed] = {}
    for mode in modes:
        _joins(app, found, (a, b, c), fresh, mode)
        _views_over_views(app, found, events, a, fresh, mode)
    return Kinds(app, found)


def faults(fresh: str = "", modes: Sequence[str] = MODES) -> Kinds:
    """One view of each kind, for tests that break something."""
    app = App(f"faults{fresh}")
    events = _events(app, fresh)
    a = app.table(f"a{fresh}", key="id", value="title string, year int")
    b = app.table(f"b{fresh}", key="id", value="score double")
    found: dict[tuple[str, str], View | Feed] = {}
    for mode in modes:
        name = _named(fresh, mode)
        found["last", mode] = app.latest(name("last"), events.with_columns(client="_key"), key="client", mode=mode)
        found["deduped", mode] = app.view(
            name("deduped"),
            events.dedupe(by="id").where("n is not null"),
            key=("k", "s"),
            columns={"events": "count(*)", "total": "sum(n)"},
            mode=mode,
        )
        found["tumbling", mode] = _tumbling(app, events, name("tumbling"), mode)
        found["two-outer", mode] = app.join(name("two-outer"), {"a": a, "b": b}, how="outer", mode=mode)
        _views_over_views(app, found, events, a, fresh, mode)
    return Kinds(app, found)


def few_faults(fresh: str = "", modes: Sequence[str] = MODES) -> Kinds:
    """A view without state, a window and a join, for tests in which one of each kind would take too long."""
    app = App(f"faults{fresh}")
    events = _events(app, fresh)
    a = app.table(f"a{fresh}", key="id", value="title string, year int")
    b = app.table(f"b{fresh}", key="id", value="score double")
    found: dict[tuple[str, str], View | Feed] = {}
    for mode in modes:
        name = _named(fresh, mode)
        found["last", mode] = app.latest(name("last"), events.with_columns(client="_key"), key="client", mode=mode)
        found["tumbling", mode] = _tumbling(app, events, name("tumbling"), mode)
        found["two-outer", mode] = app.join(name("two-outer"), {"a": a, "b": b}, how="outer", mode=mode)
    return Kinds(app, found)


def few_kinds(fresh: str = "", modes: Sequence[str] = MODES) -> Kinds:
    """A view for each Java part of the pipeline: those that read, sum, conflate, shuffle and write."""
    app = App(f"few-kinds{fresh}")
    events = _events(app, fresh)
    a = app.table(f"a{fresh}", key="id", value="title string, year int")
    b = app.table(f"b{fresh}", key="id", value="score double")
    found: dict[tuple[str, str], View | Feed] = {}
    for mode in modes:
        name = _named(fresh, mode)
        found["tumbling", mode] = _tumbling(app, events, name("tumbling"), mode)
        found["last-of", mode] = app.latest(
            name("last-of"), events, key="k", columns={"n": "n", "s": "s", "twice": "n * 2"}, mode=mode
        )
        found["deduped", mode] = app.view(
            name("deduped"), events.dedupe(by="id").where("n is not null"), key=("k", "s"), columns=COUNTS, mode=mode
        )
        found["two-outer", mode] = app.join(name("two-outer"), {"a": a, "b": b}, how="outer", mode=mode)
    name = _named(fresh, MICRO_BATCH)
    keyed = events.with_columns(client="_key")
    found["last", MICRO_BATCH] = app.latest(name("last"), keyed, key="client", mode=MICRO_BATCH)
    found[FEED, MICRO_BATCH] = app.feed(
        name(FEED),
        events.where("n >= 0"),
        key="k",
        columns={"n": "n", "note": "note"},
        mode=MICRO_BATCH,
    )
    return Kinds(app, found)


def _with_time(app: App, found: dict[tuple[str, str], View | Feed], events: Topic, fresh: str, mode: str) -> None:
    name, timed = _named(fresh, mode), events.with_columns(time="timestamp_millis(at)")
    found["tumbling", mode] = app.view(
        name("tumbling"),
        timed,
        key="k",
        window="10 minutes",
        at="time",
        late="1 hour",
        columns={"events": "count(*)", "greatest": "max(n)"},
        mode=mode,
    )
    found["sliding", mode] = app.view(
        name("sliding"),
        timed,
        key=("k", "n"),
        window="10 minutes",
        slide="4 minutes",
        at="time",
        late="1 hour",
        columns={"events": "count(*)"},
        mode=mode,
    )
    found["deduped-within", mode] = app.view(
        name("deduped-within"), events.dedupe(by=("id", "n"), within="1 hour"), key="k", columns=COUNTS, mode=mode
    )
    found[FEED, mode] = app.feed(
        name(FEED), events.where("n >= 0"), key="k", columns={"n": "n", "note": "note"}, mode=mode
    )


def _tumbling(app: App, events: Topic, name: str, mode: str) -> View:
    return app.view(
        name,
        events.with_columns(time="timestamp_millis(at)"),
        key="k",
        window="10 minutes",
        at="time",
        late="1 hour",
        columns={"events": "count(*)", "greatest": "max(n)"},
        mode=mode,
    )


def _events(app: App, fresh: str) -> Topic:
    return app.topic(f"{EVENTS}{fresh}", value=EVENT, expect="coalesce(x, 0) >= 0")


def _joins(
    app: App, found: dict[tuple[str, str], View | Feed], tables: tuple[Table, Table, Table], fresh: str, mode: str
) -> None:
    a, b, c = tables
    name = _named(fresh, mode)
    about = {"about": "left(coalesce(nullif(a.title, ''), '?'), 20)", "score": "b.score", "tag": "c.tag"}
    found["recent", mode] = app.latest(name("recent"), a.where("year >= 2000"), mode=mode)
    for how in ("inner", "left", "outer"):
        found[f"two-{how}", mode] = app.join(name(f"two-{how}"), {"a": a, "b": b}, how=how, mode=mode)
        shown = {"a": a, "b": b, "c": c.where("tag <> 'hidden'")}
        found[f"three-{how}", mode] = app.join(name(f"three-{how}"), shown, how=how, columns=about, mode=mode)


def _views_over_views(
    app: App, found: dict[tuple[str, str], View | Feed], events: Topic, a: Table, fresh: str, mode: str
) -> None:
    name = _named(fresh, mode)
    columns = {"mean": "avg(x)", "events": "count(*)"}
    averages = app.view(name("averages"), events, key="k", columns=columns, mode=mode)
    found["averages", mode] = averages
    found["good", mode] = app.latest(
        name("good"), averages.where("mean >= 5").with_columns(label="concat(k, '!')"), mode=mode
    )
    found["enriched", mode] = app.join(
        name("enriched"),
        {"rated": averages, "a": a.where("year >= 2000")},
        how="left",
        columns={"mean": "rated.mean", "year": "a.year"},
        mode=mode,
    )


class _named:
    """Names of outputs, of one mode."""

    def __init__(self, fresh: str, mode: str) -> None:
        self._fresh = fresh
        self._mode = mode

    def __call__(self, kind: str) -> str:
        return f"{kind}-{self._mode}{self._fresh}"
