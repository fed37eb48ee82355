"""Views: one row per key, always current. Feeds: every event of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.declarations.place import Place, calling_place
from tailrace.declarations.topics import Step, Table, Topic, Where, WithColumns

# Name → Spark SQL, or a function that gives name → PySpark column and is called in the pipeline process.
Columns = Mapping[str, str] | Callable[[], Mapping[str, Any]]
# From a PySpark data frame to another.
Transform = Callable[[Any], Any]

AGGREGATE = "aggregate"
LATEST = "latest"
WINDOW = "window"
JOIN = "join"

FEED_LENGTH = 10_000
FEED_AGE = "1 day"

REAL_TIME = "real-time"
MICRO_BATCH = "micro-batch"


# As far as Kafka's brokers let the timestamp of a record be ahead of their clock.
AHEAD = "1 hour"


@dataclass(frozen=True)
class Window:
    """Stretches of time in which events are counted, by the column `at`.

    `slide` is how far apart windows start; if they do not overlap, it is their size. `late` is how much older than the
    newest event an event may be, and `ahead` how much later than its record. `keep` is how long a row stays after its
    window has ended, for ever by default.
    """

    size: str
    slide: str | None
    at: str
    late: str
    keep: str | None
    ahead: str = AHEAD


@dataclass(frozen=True)
class Changelog:
    """A view read as a table: its rows by its key, with steps of its own."""

    view: View
    steps: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """The name of the Kafka topic."""
        return self.view.changelog

    @property
    def place(self) -> Place:
        """Where the view is declared."""
        return self.view.place

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the view."""
        return self.view.row_key

    def where(self, condition: str) -> Changelog:
        """The rows of the view for which the SQL condition holds; for readers the others are gone."""
        return replace(self, steps=(*self.steps, Where(condition, calling_place())))

    def with_columns(self, **columns: str) -> Changelog:
        """The rows of the view with more columns, each computed by a Spark SQL expression."""
        return replace(self, steps=(*self.steps, WithColumns(tuple(columns.items()), calling_place())))


Source = Topic | Table | Changelog


@dataclass(frozen=True)
class View:
    """A view: what one row per key is made of.

    `sources` are what it is computed from, each with the name that a join's columns know it by. `columns` maps a
    column's name to the Spark SQL that computes it, or is a function; the row that clients see is the key columns
    followed by these. `changelog` names the compacted topic that the view is written to.
    """

    name: str
    kind: str
    sources: tuple[tuple[str, Source], ...]
    key: tuple[str, ...]
    columns: Columns | None
    changelog: str
    mode: str
    place: Place
    window: Window | None = None
    how: str = ""
    transform: Transform | None = None

    @property
    def source(self) -> Source:
        """The source of a view that has only one."""
        return self.sources[0][1]

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that a row is found by: in a window, its start is the last of them."""
        return (*self.key, WINDOW_START) if self.window is not None else self.key

    def where(self, condition: str) -> Changelog:
        """The view as a source of other views: its rows for which the SQL condition holds."""
        return Changelog(self).where(condition)

    def with_columns(self, **columns: str) -> Changelog:
        """The view as a source of other views, with more columns."""
        return Changelog(self).with_columns(**columns)


WINDOW_START = "window_start"
WINDOW_END = "window_end"


@dataclass(frozen=True)
class Feed:
    """Every event of a key, in order, for clients that listen.

    `hold` is how long a client's events are kept after it has left; `retain` is `listening` or `always`. `length` and
    `age` are how many events are kept for a client at most, and for how long at least.
    """

    name: str
    source: Topic
    key: tuple[str, ...]
    columns: Columns | None
    changelog: str
    mode: str
    place: Place
    hold: str
    retain: str
    transform: Transform | None = None
    length: int = FEED_LENGTH
    age: str = FEED_AGE

    @property
    def sources(self) -> tuple[tuple[str, Source], ...]:
        """What it is computed from, as for a view."""
        return (("", self.source),)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that say whose event it is."""
        return self.key


def as_source(given: Any) -> Any:
    """A source; a view as a source is read as a table."""
    return Changelog(given) if isinstance(given, View) else given
