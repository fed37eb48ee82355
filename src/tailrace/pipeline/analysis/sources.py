"""What Spark's analysis says of topics, tables and their steps."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.declarations.place import Place
from tailrace.declarations.topics import Dedupe, Step, Topic, Where
from tailrace.pipeline.analysis.findings import Findings, names_of
from tailrace.pipeline.source import decoding
from tailrace.pipeline.source.decoding import SKIPPED, Schemas
from tailrace.pipeline.source.reading import Reading, key_columns
from tailrace.pipeline.view import events


class SourceAnalysis:
    """The columns of readings, in frames without rows; mistakes in steps that several views share are noted once."""

    def __init__(self, session: SparkSession, findings: Findings) -> None:
        self._session = session
        self._findings = findings
        self._schemas: dict[Topic, Schemas] = {}
        self._frames: dict[Reading, DataFrame | None] = {}
        self._bad: set[Reading] = set()

    def declared(self, reading: Reading, subject: str) -> None:
        """Look at a topic or table as it is declared."""
        self.frame(replace(reading, topic=replace(reading.topic, steps=())), subject)

    def good(self, reading: Reading) -> bool:
        """Whether a reading, and all of its steps, are without mistakes."""
        return reading in self._frames and self._frames[reading] is not None and reading not in self._bad

    def frame(self, reading: Reading, subject: str) -> DataFrame | None:
        """What a user's SQL sees of a reading, without rows; None if the topic itself can't be read."""
        if reading not in self._frames:
            topic = reading.topic
            if not topic.steps:
                self._frames[reading] = self._first(reading, subject)
                return self._frames[reading]
            before_reading = replace(reading, topic=replace(topic, steps=topic.steps[:-1]))
            before = self.frame(before_reading, subject)
            if before is None:
                self._frames[reading] = None
                return None
            known = len(self._findings.mistakes)
            self._frames[reading] = self._step(before, subject, topic.steps[-1])
            if len(self._findings.mistakes) > known or before_reading in self._bad:
                self._bad.add(reading)
        return self._frames[reading]

    def decoded(self, reading: Reading) -> DataFrame:
        """The records of a good reading after its steps as the plan has them, without rows."""
        schemas = self._schemas[replace(reading.topic, steps=())]
        fields = [*schemas.value.fields, *decoding.metadata_schema(schemas.key).fields]
        skipped = StructField(SKIPPED, StringType())
        return events.stepped(self._session.createDataFrame([], StructType([*fields, skipped])), reading)

    def _first(self, reading: Reading, subject: str) -> DataFrame | None:
        topic = reading.topic
        value = self._value(topic, subject)
        key = self._findings.attempt(
            lambda: decoding.key_type(self._session, topic),
            topic.place,
            subject,
            "a schema of the key",
            f"key_schema={topic.key_schema!r}",
            "Correct key_schema=….",
        )
        if value is None or key is None:
            return None
        self._schemas[topic] = Schemas(value, key)
        columns = StructType([*value.fields, *decoding.metadata_schema(key).fields])
        empty = self._session.createDataFrame([], columns)
        if reading.is_table and not self._has_key(reading, key, subject):
            return None
        if reading.is_table:
            empty = empty.withColumns(key_columns(reading, key))
        if topic.expect is not None:
            known = len(self._findings.mistakes)
            self._condition(empty, subject, topic.expect, topic.place, f"expect={topic.expect!r}")
            if len(self._findings.mistakes) > known:
                self._bad.add(reading)
        return empty

    def _has_key(self, reading: Reading, key: object, subject: str) -> bool:
        if reading.ranked:
            return True
        if not isinstance(key, StructType):
            if len(reading.key) != 1:
                expected, got = "one key column for a key that is no record", ", ".join(reading.key)
                self._findings.add(reading.topic.place, subject, expected, got, "Correct key=… or key_schema=….")
            return len(reading.key) == 1
        missing = [name for name in reading.key if name not in key.fieldNames()]
        for name in missing:
            expected = f"key columns out of the fields of key_schema=…: {', '.join(key.fieldNames())}"
            self._findings.add(reading.topic.place, subject, expected, repr(name), "Correct key=….")
        return not missing

    def _value(self, topic: Topic, subject: str) -> StructType | None:
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
        schema = self._findings.attempt(
            lambda: decoding.value_schema(self._session, topic), topic.place, subject, expected, got, remedy
        )
        if schema is None:
            return None
        plain = decoding.PLAIN_TYPES.get(topic.format)
        if plain is not None and [field.dataType for field in schema.fields] != [plain]:
            expected = f"one field of type {plain.simpleString()}, because the format is {topic.format!r}"
            remedy = f'Such as value="{topic.format} {plain.simpleString()}".'
            self._findings.add(topic.place, subject, expected, got, remedy)
        names = [name for name in schema.fieldNames() if name.startswith("_")]
        for name in names:
            self._findings.add(
                topic.place,
                subject,
                "fields that start with a letter",
                f"{name!r}; names with a leading _ are for record metadata",
                "Rename the field.",
            )
        return None if names else schema

    def _step(self, before: DataFrame, subject: str, step: Step) -> DataFrame:
        if isinstance(step, Where):
            self._condition(before, subject, step.condition, step.place, f"where({step.condition!r})")
            return before
        if isinstance(step, Dedupe):
            for name in step.by:
                self._told_apart(before, subject, name, step.place)
            return before
        columns: dict[str, SparkColumn] = {}
        for name, sql in step.columns:
            # As in the plan: computed under a condition.
            column = F.when(F.lit(True), F.expr(sql))
            frame = self._findings.attempt(
                lambda name=name, column=column: before.withColumn(name, column),  # type: ignore[misc]
                step.place,
                f"{subject}, column {name!r}",
                f"an expression over the columns {names_of(before)}",
                f"with_columns({name}={sql!r})",
                "Correct the expression.",
            )
            # A column with a mistake still has its name, so that what follows is not a mistake for the lack of it.
            columns[name] = column if frame is not None else F.lit(None)
        return before.withColumns(columns) if columns else before

    def _told_apart(self, before: DataFrame, subject: str, name: str, place: Place) -> None:
        self._findings.attempt(
            lambda: before.select(F.col(name)).distinct().schema,
            place,
            subject,
            f"a column to dedupe by out of {names_of(before)}, or of the metadata, that can be compared",
            f"dedupe(by={name!r})",
            "Correct the column, or add one with .with_columns(…) before.",
        )

    def _condition(self, frame: DataFrame, subject: str, sql: str, place: Place, got: str) -> None:
        expected = f"a condition over the columns {names_of(frame)}"
        remedy = "Correct the condition."
        self._findings.attempt(lambda: frame.where(sql), place, subject, expected, got, remedy)
