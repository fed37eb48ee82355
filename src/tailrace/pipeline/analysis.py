"""What Spark's analysis says of an app, before anything runs: mistakes in schemas and SQL, and column types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

from tailrace.app import App
from tailrace.catalog import Column
from tailrace.mistakes import Mistake
from tailrace.pipeline import decoding, plans
from tailrace.place import Place
from tailrace.topics import Dedupe, Step, Topic, Where
from tailrace.views import View

T = TypeVar("T")


class Analysis:
    """Finds mistakes declaration by declaration, so that one does not hide the next."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._frames: dict[Topic, DataFrame] = {}
        self.mistakes: list[Mistake] = []
        self.columns: dict[str, tuple[tuple[Column, ...], tuple[Column, ...]]] = {}

    def examine(self, app: App) -> None:
        """Analyse every topic and view."""
        for topic in app.topics:
            self._declared(topic)
        for view in app.views:
            if replace(view.source, steps=()) in self._frames:
                self._view(view, self._frame(view.source))

    def _declared(self, topic: Topic) -> None:
        """Keep the columns of a topic as it is declared, in a frame without rows."""
        schema = self._schema(topic)
        if schema is None:
            return
        columns = StructType([*schema.fields, *decoding.metadata_schema(topic).fields])
        empty = self._frames[topic] = self._session.createDataFrame([], columns)
        if topic.expect is not None:
            self._condition(empty, topic, topic.expect, topic.place, f"expect={topic.expect!r}")

    def _schema(self, topic: Topic) -> StructType | None:
        subject = f"topic {topic.name!r}"
        if topic.format == "avro":
            if topic.schema is None:
                return None
            expected, got = "an Avro record schema, as JSON text or as the path of a file", f"schema={topic.schema!r}"
            remedy = "Correct schema=…."
        else:
            if topic.value is None:
                return None
            expected, got = 'a schema as DDL text, such as "movie_id long, rating double"', repr(topic.value)
            remedy = "Correct value=…."
        schema = self._attempt(
            lambda: decoding.value_schema(self._session, topic), topic.place, subject, expected, got, remedy
        )
        if schema is None:
            return None
        plain = decoding.PLAIN_TYPES.get(topic.format)
        if plain is not None and [field.dataType for field in schema.fields] != [plain]:
            expected = f"one field of type {plain.simpleString()}, because the format is {topic.format!r}"
            remedy = f'Such as value="{topic.format} {plain.simpleString()}".'
            self.mistakes.append(Mistake(topic.place, subject, expected, got, remedy))
        names = [name for name in schema.fieldNames() if name.startswith("_")]
        for name in names:
            self.mistakes.append(
                Mistake(
                    topic.place,
                    subject,
                    "fields that start with a letter",
                    f"{name!r}; names with a leading _ are for record metadata",
                    "Rename the field.",
                )
            )
        return None if names else schema

    def _frame(self, topic: Topic) -> DataFrame:
        """The columns of a topic after its steps. Views that share steps share their mistakes."""
        if topic not in self._frames:
            before = self._frame(replace(topic, steps=topic.steps[:-1]))
            self._frames[topic] = self._step(before, topic, topic.steps[-1])
        return self._frames[topic]

    def _step(self, before: DataFrame, topic: Topic, step: Step) -> DataFrame:
        if isinstance(step, Where):
            self._condition(before, topic, step.condition, step.place, f"where({step.condition!r})")
            return before
        if isinstance(step, Dedupe):
            for name in step.by:
                self._told_apart(before, topic, name, step.place)
            return before
        columns: dict[str, SparkColumn] = {}
        for name, sql in step.columns:
            # As in the plan: computed under a condition.
            column = F.when(F.lit(True), F.expr(sql))
            frame = self._attempt(
                lambda name=name, column=column: before.withColumn(name, column),  # type: ignore[misc]
                step.place,
                f"topic {topic.name!r}, column {name!r}",
                f"an expression over the columns {_names(before)}",
                f"with_columns({name}={sql!r})",
                "Correct the expression.",
            )
            # A column with a mistake still has its name, so that what follows is not a mistake for the lack of it.
            columns[name] = column if frame is not None else F.lit(None)
        return before.withColumns(columns) if columns else before

    def _told_apart(self, before: DataFrame, topic: Topic, name: str, place: Place) -> None:
        self._attempt(
            lambda: before.select(F.col(name)).distinct().schema,
            place,
            f"topic {topic.name!r}",
            f"a column to dedupe by out of {_names(before)}, or of the metadata, that can be compared",
            f"dedupe(by={name!r})",
            "Correct the column, or add one with .with_columns(…) before.",
        )

    def _condition(self, frame: DataFrame, topic: Topic, sql: str, place: Place, got: str) -> None:
        expected = f"a condition over the columns {_names(frame)}"
        remedy = "Correct the condition."
        self._attempt(lambda: frame.where(sql), place, f"topic {topic.name!r}", expected, got, remedy)

    def _view(self, view: View, events: DataFrame) -> None:
        schema = events.schema
        bad = [self._bad_key(view, name, schema) for name in view.key]
        if any(bad) or not view.key:
            return
        good = [self._column(view, events, name, sql) for name, sql in view.columns.items()]
        if all(good):
            self._keep_types(view, plans.rows(events, view).schema)

    def _bad_key(self, view: View, name: str, schema: StructType) -> bool:
        if name not in schema.fieldNames():
            expected = f"a key out of the topic's columns {_names(schema)}"
            got, remedy = repr(name), "Correct key=…, or add the column to the topic's value=… or .with_columns(…)."
        elif isinstance(schema[name].dataType, ArrayType | MapType | StructType | VariantType):
            expected = "a key of a plain type such as long or string"
            got = f"{name!r} of type {schema[name].dataType.simpleString()}"
            remedy = 'Choose another column; a field of a struct needs one of its own: .with_columns(id="movie.id").'
        elif isinstance(schema[name].dataType, BinaryType):
            expected, got = "a key that has a text", f"{name!r} of type binary"
            remedy = f'Make one of it: .with_columns({name}="base64({name})").'
        else:
            return False
        self.mistakes.append(Mistake(view.place, f"view {view.name!r}", expected, got, remedy))
        return True

    def _column(self, view: View, events: DataFrame, name: str, sql: str) -> bool:
        return (
            self._attempt(
                lambda: events.groupBy(*view.key).agg(F.expr(sql).alias(name)).schema,
                view.place,
                f"view {view.name!r}, column {name!r}",
                f"an aggregate over the columns {_names(events)}",
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
            reason = f"Spark says: {_first_line(error)}"
        except decoding.SchemaUnusable as error:
            reason = f"The schema can't be used: {error}"
        self.mistakes.append(Mistake(place, subject, expected, got, f"{reason}\n    {remedy}"))
        return None


def _names(columns: DataFrame | StructType) -> str:
    """The columns that the user has declared; those of the metadata are the same everywhere."""
    names = columns.columns if isinstance(columns, DataFrame) else columns.fieldNames()
    return ", ".join(name for name in names if not name.startswith("_"))


def _first_line(error: PySparkException) -> str:
    """Spark's message without the state, the position and the plan that follow it."""
    for line in str(error).splitlines():
        text = line.strip()
        if text:
            return text.partition(" SQLSTATE:")[0]
    return type(error).__name__
