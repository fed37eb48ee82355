"""The app: what a user's module declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from types import MappingProxyType

from tailrace.place import Place, calling_place
from tailrace.topics import Topic
from tailrace.views import View


class App:
    """Collects the declarations of one module.

    Declaring does no I/O and never raises for what is declared: mistakes are found all at once by
    `tailrace check`, and again before the pipeline starts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place: Place = calling_place()
        self._topics: list[Topic] = []
        self._views: list[View] = []

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The declared topics, in the order of the module."""
        return tuple(self._topics)

    @property
    def views(self) -> tuple[View, ...]:
        """The declared views, in the order of the module."""
        return tuple(self._views)

    def topic(
        self,
        name: str,
        *,
        value: str | None = None,
        format: str = "json",
        key_format: str = "string",
        schema: str | PathLike[str] | None = None,
        expect: str | None = None,
    ) -> Topic:
        """Declare a Kafka topic.

        value: the schema of the record value as DDL text, such as `"movie_id long, rating double"`.
        format: how the value is written: `"json"`, `"avro"`, or `"string"`, `"long"`, `"double"`, `"bytes"` for a
            single field.
        key_format: how the record key is written, for the column `_key`: `"string"`, `"long"`, `"double"`, `"bytes"`.
        schema: with `format="avro"`, instead of `value`: the Avro schema as JSON text, or the path of an .avsc file,
            from the module's directory; the file is read when the app is checked or run, not when it is declared.
        expect: a SQL condition that every record must meet; others are skipped as `broken-rule`.
        """
        topic = Topic(
            name=name,
            value=value,
            format=format,
            key_format=key_format,
            schema=fspath(schema) if schema is not None else None,
            expect=expect,
            steps=(),
            place=calling_place(),
        )
        self._topics.append(topic)
        return topic

    def view(
        self,
        name: str,
        source: Topic,
        *,
        key: str | Sequence[str] = (),
        columns: Mapping[str, str],
        to: str | None = None,
    ) -> View:
        """Declare an aggregate view over a topic.

        key: the column, or columns, that a row is found by.
        columns: name → Spark SQL aggregate, such as `{"rating": "avg(rating)", "ratings": "count(*)"}`.
        to: the changelog topic; the view's own name where it is not given.
        """
        view = View(
            name=name,
            source=source,
            key=(key,) if isinstance(key, str) else tuple(key),
            columns=MappingProxyType(dict(columns)),
            changelog=to if to is not None else name,
            place=calling_place(),
        )
        self._views.append(view)
        return view
