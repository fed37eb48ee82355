"""What Spark's analysis says of an app, before anything runs: mistakes in schemas and SQL, and column types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType, VariantType

from tailrace.app import App
from tailrace.catalog import Column
from tailrace.mistakes import Mistake
from tailrace.pipeline import plans
from tailrace.place import Place
from tailrace.topics import Topic
from tailrace.views import View

T = TypeVar("T")


class Analysis:
    """Finds mistakes declaration by declaration, so that one does not hide the next."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.mistakes: list[Mistake] = []
        self.columns: dict[str, tuple[tuple[Column, ...], tuple[Column, ...]]] = {}

    def examine(self, app: App) -> None:
        """Analyse every topic and view."""
        schemas: dict[str, StructType] = {}
        for topic in app.topics:
            schema = self._schema(topic)
            if schema is not None:
                schemas[topic.name] = schema
        for view in app.views:
            if view.source.name in schemas:
                self._view(view, schemas[view.source.name])

    def _schema(self, topic: Topic) -> StructType | None:
        schema = self._attempt(
            lambda: plans.value_schema(self._session, topic),
            topic.place,
            f"topic {topic.name!r}",
            'a schema as DDL text, such as "movie_id long, rating double"',
            repr(topic.value),
            "Correct value=….",
        )
        if schema is None:
            return None
        names = [name for name in schema.fieldNames() if name.startswith("_")]
        for name in names:
            self.mistakes.append(
                Mistake(
                    topic.place,
                    f"topic {topic.name!r}",
                    "fields that start with a letter",
                    f"{name!r}; names with a leading _ are for record metadata",
                    "Rename the field.",
                )
            )
        return None if names else schema

    def _view(self, view: View, schema: StructType) -> None:
        subject = f"view {view.name!r}"
        missing = [name for name in view.key if name not in schema.fieldNames()]
        for name in missing:
            self.mistakes.append(
                Mistake(
                    view.place,
                    subject,
                    f"a key out of the topic's columns {', '.join(schema.fieldNames())}",
                    repr(name),
                    "Correct key=…, or add the column to the topic's value=….",
                )
            )
        for name in view.key:
            if name not in missing and isinstance(
                schema[name].dataType, ArrayType | MapType | StructType | VariantType
            ):
                missing.append(name)
                self.mistakes.append(
                    Mistake(
                        view.place,
                        subject,
                        "a key of a plain type such as long or string",
                        f"{name!r} of type {schema[name].dataType.simpleString()}",
                        "Choose another column; a field of a struct needs a column of its own.",
                    )
                )
        empty = self._session.createDataFrame([], StructType([*schema.fields]).add(plans.TIMESTAMP, TimestampType()))
        for condition in view.source.conditions:
            self._attempt(
                lambda condition=condition: empty.where(condition),  # type: ignore[misc]
                view.source.place,
                f"topic {view.source.name!r}",
                f"a condition over the columns {', '.join(schema.fieldNames())}",
                f"where({condition!r})",
                "Correct the condition.",
            )
        if missing or not view.key:
            return
        good = [self._column(view, empty, name, sql, schema) for name, sql in view.columns.items()]
        if all(good):
            self._keep_types(view, plans.rows(empty, view).schema)

    def _column(self, view: View, empty: DataFrame, name: str, sql: str, schema: StructType) -> bool:
        return (
            self._attempt(
                lambda: empty.groupBy(*view.key).agg(F.expr(sql).alias(name)).schema,
                view.place,
                f"view {view.name!r}, column {name!r}",
                f"an aggregate over the columns {', '.join(schema.fieldNames())}",
                repr(sql),
                "Correct the expression; such as avg(rating), count(*) or max(rating).",
            )
            is not None
        )

    def _keep_types(self, view: View, schema: StructType) -> None:
        def column(name: str) -> Column:
            return Column(name, schema[name].dataType.simpleString())

        self.columns[view.name] = (
            tuple(column(name) for name in view.key),
            tuple(column(name) for name in view.columns),
        )

    def _attempt(
        self, build: Callable[[], T], place: Place, subject: str, expected: str, got: str, remedy: str
    ) -> T | None:
        try:
            return build()
        except PySparkException as error:
            self.mistakes.append(
                Mistake(place, subject, expected, got, f"Spark says: {_first_line(error)}\n    {remedy}")
            )
            return None


def _first_line(error: PySparkException) -> str:
    """Spark's message without the state, the position and the plan that follow it."""
    for line in str(error).splitlines():
        text = line.strip()
        if text:
            return text.partition(" SQLSTATE:")[0]
    return type(error).__name__
