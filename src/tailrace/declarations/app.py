"""The app: what a user's module declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from types import MappingProxyType

from tailrace.declarations.place import Place, calling_place
from tailrace.declarations.topics import Table, Topic
from tailrace.declarations.views import (
    AGGREGATE,
    AHEAD,
    FEED_AGE,
    FEED_LENGTH,
    JOIN,
    LATEST,
    REAL_TIME,
    WINDOW,
    Changelog,
    Columns,
    Feed,
    Transform,
    View,
    Window,
    as_source,
)


class App:
    """Collects the declarations of one module.

    Declaring does no I/O and never raises for a mistake: `tailrace check` finds all mistakes at once, and the pipeline
    checks again before it starts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place: Place = calling_place()
        self._topics: list[Topic | Table] = []
        self._views: list[View] = []
        self._feeds: list[Feed] = []

    @property
    def topics(self) -> tuple[Topic | Table, ...]:
        """The declared topics and tables, in the order of the module."""
        return tuple(self._topics)

    @property
    def views(self) -> tuple[View, ...]:
        """The declared views, in the order of the module."""
        return tuple(self._views)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The declared feeds, in the order of the module."""
        return tuple(self._feeds)

    @property
    def outputs(self) -> tuple[View | Feed, ...]:
        """Everything that the pipeline writes: views, then feeds."""
        return (*self._views, *self._feeds)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The Kafka topics that others write and something is computed from, sorted by name."""
        read = {s.name for output in self.outputs for _, s in output.sources if not isinstance(s, Changelog)}
        return tuple(sorted(read))

    def topic(
        self,
        name: str,
        *,
        value: str | None = None,
        format: str = "json",
        key_format: str = "string",
        schema: str | PathLike[str] | None = None,
        key_schema: str | PathLike[str] | None = None,
        registry: bool = False,
        expect: str | None = None,
        accept: bool = False,
    ) -> Topic:
        """Declare a Kafka topic that is read as events.

        value: the schema of the record value as DDL text, such as `"movie_id long, rating double"`.
        format: how the value is written: `"json"`, `"avro"`, or `"string"`, `"long"`, `"double"`, `"bytes"` for a
            single field.
        key_format: how the record key is written, for the column `_key`; the same formats.
        schema: with `format="avro"`, instead of `value`: the Avro schema as JSON text, or the path of an .avsc file,
            from the module's directory. The file is read when the app is checked or run, not when it is declared.
        key_schema: the same for the key with `key_format="avro"`; DDL text with `key_format="json"`.
        registry: Avro values and keys are in the wire format of a schema registry, which has their schemas.
        expect: a SQL condition that every record must meet; others become dead letters, as `broken-rule`.
        accept: whether clients of the gateway may write events to it: `POST /topics/{topic}/events`.
        """
        topic = _topic(name, value, format, key_format, schema, key_schema, registry, expect, accept)
        self._topics.append(topic)
        return topic

    def table(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        value: str | None = None,
        format: str = "json",
        key_format: str = "string",
        schema: str | PathLike[str] | None = None,
        key_schema: str | PathLike[str] | None = None,
        registry: bool = False,
        expect: str | None = None,
        accept: bool = False,
    ) -> Table:
        """Declare a Kafka topic that is read as the latest value per record key; a null value deletes the key.

        key: the name of the column that the record key becomes; with a key of several fields (`key_format` `"json"` or
            `"avro"`), the fields. It replaces a field of the value with the same name.
        The other arguments are those of `topic`.
        """
        topic = _topic(name, value, format, key_format, schema, key_schema, registry, expect, accept)
        table = Table(topic, _names(key))
        self._topics.append(table)
        return table

    def view(
        self,
        name: str,
        source: Topic,
        *,
        key: str | Sequence[str] = (),
        columns: Columns,
        window: str | None = None,
        slide: str | None = None,
        at: str = "_timestamp",
        late: str = "1 minute",
        ahead: str = AHEAD,
        keep: str | None = None,
        transform: Transform | None = None,
        mode: str = REAL_TIME,
        to: str | None = None,
    ) -> View:
        """Declare a view that aggregates the events of a topic, in windows of time if `window` is given.

        key: the column, or columns, that a row is found by. With a window, its start is the last part of the key.
        columns: name → Spark SQL aggregate, such as `{"rating": "avg(rating)", "ratings": "count(*)"}`; or a function
            that gives name → PySpark column.
        window: the length of a window, such as `"1 hour"`; slide: how far apart windows start, if they overlap.
        at: the timestamp column of an event; late: how much older than the newest event it may be;
            ahead: how much later than the timestamp of its record it may be.
        keep: how long a row stays after the end of its window; for ever by default.
        transform: a function from a data frame of events to one, without state, such as an `explode`.
        mode: `"real-time"`, or `"micro-batch"`.
        to: the changelog topic; by default it has the view's name.
        """
        windowed = Window(window, slide, at, late, keep, ahead) if window is not None else None
        return self._add(
            View(
                name=name,
                kind=WINDOW if windowed is not None else AGGREGATE,
                sources=(("", as_source(source)),),
                key=_names(key),
                columns=_frozen(columns),
                changelog=to if to is not None else name,
                mode=mode,
                place=calling_place(),
                window=windowed,
                transform=transform,
            )
        )

    def latest(
        self,
        name: str,
        source: Topic | Table | View | Changelog,
        *,
        key: str | Sequence[str] = (),
        columns: Columns | None = None,
        transform: Transform | None = None,
        mode: str = REAL_TIME,
        to: str | None = None,
    ) -> View:
        """Declare a view of the latest event per key of a topic, or of the rows of a table or another view.

        key: the column, or columns, that a row is found by; by default that of the table or view.
        columns: name → Spark SQL over one event; by default all columns of the source.
        The other arguments are those of `view`.
        """
        found = as_source(source)
        return self._add(
            View(
                name=name,
                kind=LATEST,
                sources=(("", found),),
                key=_names(key) or (() if isinstance(found, Topic) else found.key),
                columns=_frozen(columns),
                changelog=to if to is not None else name,
                mode=mode,
                place=calling_place(),
                transform=transform,
            )
        )

    def join(
        self,
        name: str,
        tables: Mapping[str, Table | View | Changelog],
        *,
        how: str = "inner",
        columns: Columns | None = None,
        mode: str = REAL_TIME,
        to: str | None = None,
    ) -> View:
        """Declare a view that joins the rows that two or more tables or views have under the same key.

        tables: what is joined, each with the name that it has in `columns`.
        how: there is a row if all have the key (`"inner"`), if the first has it (`"left"`), or if any has it
            (`"outer"`).
        columns: name → Spark SQL, such as `{"title": "movie.title"}`; by default all columns of all.
        The other arguments are those of `view`.
        """
        found = tuple((alias, as_source(table)) for alias, table in tables.items())
        return self._add(
            View(
                name=name,
                kind=JOIN,
                sources=found,
                key=getattr(found[0][1], "key", ()) if found else (),
                columns=_frozen(columns),
                changelog=to if to is not None else name,
                mode=mode,
                place=calling_place(),
                how=how,
            )
        )

    def feed(
        self,
        name: str,
        source: Topic,
        *,
        key: str | Sequence[str],
        columns: Columns | None = None,
        transform: Transform | None = None,
        hold: str = "30s",
        retain: str = "listening",
        length: int = FEED_LENGTH,
        age: str = FEED_AGE,
        mode: str = REAL_TIME,
        to: str | None = None,
    ) -> Feed:
        """Declare a feed: every event of a topic, in order, for the client that it is for.

        key: the column, or columns, that say which client; such as `"client_id"`.
        columns: name → Spark SQL over one event; by default all columns of the topic.
        hold: how long a client's events are kept after it has left.
        retain: `"listening"`: events are kept only for clients that listen; `"always"`: also for clients that come
            later.
        length, age: how many events are kept for one client at most, and for how long at least.
        The other arguments are those of `view`.
        """
        feed = Feed(
            name=name,
            source=source,
            key=_names(key),
            columns=_frozen(columns),
            changelog=to if to is not None else name,
            mode=mode,
            place=calling_place(),
            hold=hold,
            retain=retain,
            transform=transform,
            length=length,
            age=age,
        )
        self._feeds.append(feed)
        return feed

    def _add(self, view: View) -> View:
        self._views.append(view)
        return view


def _topic(
    name: str,
    value: str | None,
    format: str,
    key_format: str,
    schema: str | PathLike[str] | None,
    key_schema: str | PathLike[str] | None,
    registry: bool,
    expect: str | None,
    accept: bool,
) -> Topic:
    return Topic(
        name=name,
        value=value,
        format=format,
        key_format=key_format,
        schema=fspath(schema) if schema is not None else None,
        expect=expect,
        steps=(),
        place=calling_place(),
        key_schema=fspath(key_schema) if key_schema is not None else None,
        registry=registry,
        accept=accept,
    )


def _names(key: str | Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def _frozen(columns: Columns | None) -> Columns | None:
    return MappingProxyType(dict(columns)) if isinstance(columns, Mapping) else columns
