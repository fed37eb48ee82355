"""The app: what a user's module declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def topic(self, name: str, *, value: str, format: str = "json") -> Topic:
        """Declare a Kafka topic.

        value: the schema of the record value as DDL text, such as `"movie_id long, rating double"`.
        format: how the value is written; `"json"`.
        """
        topic = Topic(name=name, value=value, format=format, conditions=(), place=calling_place())
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
