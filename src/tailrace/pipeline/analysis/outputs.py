"""What Spark's analysis says of views and feeds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, TimestampType, VariantType

from tailrace.contracts.catalog import Column
from tailrace.declarations.mistakes import of_column_name
from tailrace.declarations.views import AGGREGATE, JOIN, REAL_TIME, WINDOW, Feed, View
from tailrace.pipeline.analysis.findings import Findings, names_of
from tailrace.pipeline.analysis.sources import SourceAnalysis
from tailrace.pipeline.changelog.changelog import row_columns
from tailrace.pipeline.source.reading import Reading
from tailrace.pipeline.view import rows as R
from tailrace.pipeline.view.plan import Decoded, rows_of

# What a row is made of beside the user's columns; a transform must leave it.
_NEEDED = ("_timestamp", "_partition", "_offset")
# What a transform may be made of: everything that takes one row after the other, without state.
_STATELESS = frozenset(
    ("Project", "Filter", "Generate", "Union", "SubqueryAlias", "LocalRelation", "LogicalRDD", "Expand", "View")
)
_PYTHON = re.compile(r"Python|Pandas|Arrow")


@dataclass(frozen=True)
class Described:
    """What the analysis knows of an output: its types, and the text of what is declared as functions."""

    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    texts: Mapping[str, object] = field(default_factory=dict)


class OutputAnalysis:
    """Looks at views and feeds whose sources are known."""

    def __init__(self, sources: SourceAnalysis, findings: Findings) -> None:
        self._sources = sources
        self._findings = findings

    def examine(
        self, output: View | Feed, readings: list[tuple[str, Reading, DataFrame]], *, planned: bool
    ) -> Described | None:
        """Note the mistakes of an output; what is known of it where it has none and is to be planned."""
        known = len(self._findings.mistakes)
        subject = f"{'view' if isinstance(output, View) else 'feed'} {output.name!r}"
        texts: dict[str, object] = {}
        if isinstance(output, View) and output.kind == JOIN:
            seen = self._joined(output, readings, subject)
        else:
            seen = self._transformed(output, readings[0][2], subject, texts)
        if seen is None:
            return None
        bad = [name for name in output.key if not self._key(output, name, seen.schema, subject)]
        if bad:
            return None
        if isinstance(output, View) and output.window is not None:
            self._time(output, output.window.at, seen.schema, subject)
        self._columns(output, seen, subject, texts)
        good = all(self._sources.good(reading) for _, reading, _ in readings)
        if not planned or not good or len(self._findings.mistakes) > known:
            return None
        return self._described(output, readings, subject, texts)

    def _described(
        self,
        output: View | Feed,
        readings: list[tuple[str, Reading, DataFrame]],
        subject: str,
        texts: dict[str, object],
    ) -> Described | None:
        decoded = [Decoded(alias, reading, self._sources.decoded(reading)) for alias, reading, _ in readings]
        rows = self._findings.attempt(
            lambda: rows_of(output, decoded),
            output.place,
            subject,
            "a plan that Spark takes",
            "one that it does not",
            "Correct the declaration.",
        )
        if rows is None:
            return None
        if output.mode == REAL_TIME and (python := _python_nodes(rows)):
            self._findings.add(
                output.place,
                subject,
                "Spark's own functions, because real-time mode runs no Python per row",
                ", ".join(python),
                'Use pyspark.sql.functions or SQL, or run the view with mode="micro-batch".',
            )
        types = {name: Column(name, rows.schema[name].dataType.simpleString()) for name in row_columns(rows)}
        return Described(
            tuple(types[name] for name in output.row_key),
            tuple(column for name, column in types.items() if name not in output.row_key),
            texts,
        )

    def _joined(self, view: View, readings: list[tuple[str, Reading, DataFrame]], subject: str) -> DataFrame | None:
        """What the columns of a join see: the key, and a struct per table."""
        first = readings[0]
        kinds = [first[2].schema[name].dataType for name in first[1].key]
        for alias, reading, frame in readings[1:]:
            for kind, name in zip(kinds, reading.key, strict=True):
                if frame.schema[name].dataType != kind:
                    expected = f"key columns of type {kind.simpleString()}, as those of {first[0]!r} are"
                    got = f"{name!r} of {alias!r} of type {frame.schema[name].dataType.simpleString()}"
                    self._findings.add(view.place, subject, expected, got, "Give both the same key_format=….")
                    return None
        structs = []
        for alias, reading, frame in readings:
            fields = [frame.schema[name] for name in R.value_columns(frame, reading.key)]
            structs.append(F.lit(None).cast(StructType(fields)).alias(alias) if fields else F.lit(True).alias(alias))
        if view.columns is None:
            self._ambiguous(view, readings, subject)
        return first[2].select(
            *(F.col(own).alias(name) for own, name in zip(first[1].key, view.key, strict=True)), *structs
        )

    def _ambiguous(self, view: View, readings: list[tuple[str, Reading, DataFrame]], subject: str) -> None:
        owners: dict[str, str] = {}
        for alias, reading, frame in readings:
            for name in R.value_columns(frame, reading.key):
                if name in view.key or owners.setdefault(name, alias) != alias:
                    got = f"{name!r} of both {owners.get(name, 'the key')!r} and {alias!r}"
                    remedy = f'Say which with columns=…, such as {{"{name}": "{alias}.{name}"}}.'
                    self._findings.add(view.place, subject, "columns with different names", got, remedy)

    def _transformed(
        self, output: View | Feed, seen: DataFrame, subject: str, texts: dict[str, object]
    ) -> DataFrame | None:
        if output.transform is None:
            return seen
        expected, remedy = "a transform from data frame to data frame", "Correct transform=…."
        try:
            made: object = output.transform(seen)
        except Exception as error:
            got = f"an error: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            self._findings.add(output.place, subject, expected, got, remedy)
            return None
        if not isinstance(made, DataFrame):
            self._findings.add(output.place, subject, expected, f"a {type(made).__name__}", remedy)
            return None
        if missing := [name for name in _NEEDED if name not in made.columns]:
            got = f"one that drops {', '.join(missing)}"
            keep = 'Keep them: frame.select("*", …) or frame.withColumn(…).'
            self._findings.add(output.place, subject, "a transform that leaves the metadata columns", got, keep)
            return None
        if stateful := _stateful_nodes(made):
            got = f"one with {', '.join(sorted(set(stateful)))}"
            alternative = "Let it take each event by itself; aggregate with columns=…, join with app.join(…)."
            self._findings.add(output.place, subject, "a transform without state", got, alternative)
            return None
        plan = str(made._jdf.queryExecution().analyzed().toString())
        texts["transform"] = re.sub(r"#\d+L?", "", plan).strip()
        return made

    def _key(self, output: View | Feed, name: str, schema: StructType, subject: str) -> bool:
        if name not in schema.fieldNames():
            expected = f"a key out of the topic's columns {names_of(schema)}"
            got, remedy = repr(name), "Correct key=…, or add the column to the topic's value=… or .with_columns(…)."
        elif isinstance(schema[name].dataType, ArrayType | MapType | StructType | VariantType):
            expected = "a key of a plain type such as long or string"
            got = f"{name!r} of type {schema[name].dataType.simpleString()}"
            remedy = 'Choose another column; a field of a struct needs one of its own: .with_columns(id="movie.id").'
        elif isinstance(schema[name].dataType, BinaryType):
            expected, got = "a key that has a text", f"{name!r} of type binary"
            remedy = f'Make one of it: .with_columns({name}="base64({name})").'
        else:
            return True
        self._findings.add(output.place, subject, expected, got, remedy)
        return False

    def _time(self, view: View, name: str, schema: StructType, subject: str) -> None:
        if name not in schema.fieldNames():
            expected, got = f"a timestamp column out of {names_of(schema)}, or _timestamp", f"at={name!r}"
        elif not isinstance(schema[name].dataType, TimestampType):
            expected = "at=… to name a column of type timestamp"
            got = f"{name!r} of type {schema[name].dataType.simpleString()}"
        else:
            return
        remedy = 'Declare it as timestamp, or make one: .with_columns(at="timestamp_millis(ms)").'
        self._findings.add(view.place, subject, expected, got, remedy)

    def _columns(self, output: View | Feed, seen: DataFrame, subject: str, texts: dict[str, object]) -> None:
        aggregates = isinstance(output, View) and output.kind in (AGGREGATE, WINDOW)
        found = self._named(output, subject, texts)
        for name, column, got in found:
            if not aggregates and self._counts(output, name, column, seen, subject, got):
                continue
            what = "an aggregate" if aggregates else "an expression"
            example = "; such as avg(rating), count(*) or max(rating)" if aggregates else ""
            self._findings.attempt(
                lambda column=column, name=name: (
                    (  # type: ignore[misc]
                        seen.groupBy(*output.key).agg(column.alias(name))
                        if aggregates
                        else seen.select(column.alias(name))
                    ).schema
                ),
                output.place,
                f"{subject}, column {name!r}",
                f"{what} over the columns {names_of(seen)}",
                got,
                f"Correct the expression{example}.",
            )

    def _counts(
        self, output: View | Feed, name: str, column: SparkColumn, seen: DataFrame, subject: str, got: str
    ) -> bool:
        """Whether a column of single events is an aggregate, which is a mistake."""
        try:
            nodes = _stateful_nodes(seen.select(column.alias(name)))
        except PySparkException:
            return False
        if not nodes:
            return False
        what = f"{subject}, column {name!r}"
        remedy = "Use app.view(…) for aggregates."
        self._findings.add(output.place, what, "an expression over one event", f"{got}, which needs several", remedy)
        return True

    def _named(self, output: View | Feed, subject: str, texts: dict[str, object]) -> list[tuple[str, SparkColumn, str]]:
        columns = output.columns
        if columns is None:
            return []
        if isinstance(columns, Mapping):
            # A mistake of an expression that does not parse is noted when it is tried.
            return [
                (name, F.expr(sql), repr(sql))
                for name, sql in columns.items()
                if self._parses(output, name, sql, subject)
            ]
        expected, remedy = "a function that gives name → PySpark column", "Correct columns=…."
        try:
            found: object = columns()
        except Exception as error:
            got = f"an error: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            self._findings.add(output.place, subject, expected, got, remedy)
            return []
        if not isinstance(found, Mapping) or not all(isinstance(column, SparkColumn) for column in found.values()):
            self._findings.add(output.place, subject, expected, f"{found!r}"[:200], remedy)
            return []
        for name in found:
            self._findings.mistakes += of_column_name(output.place, subject, str(name))
        texts["columns"] = {str(name): str(column) for name, column in found.items()}
        return [(str(name), column, str(column)) for name, column in found.items()]

    def _parses(self, output: View | Feed, name: str, sql: str, subject: str) -> bool:
        return (
            self._findings.attempt(
                lambda: F.expr(sql),
                output.place,
                f"{subject}, column {name!r}",
                "a Spark SQL expression",
                repr(sql),
                "Correct the expression.",
            )
            is not None
        )


def _stateful_nodes(frame: DataFrame) -> list[str]:
    """The operators of a plan that keep state, order or compare rows; Python's are not among them."""
    return [name for name in _nodes(frame) if name not in _STATELESS and not _PYTHON.search(name)]


def _python_nodes(frame: DataFrame) -> list[str]:
    """What of a plan runs in Python: real-time mode has no place for it, it would hold rows back in buffers."""
    found = [name for name in _nodes(frame) if _PYTHON.search(name)]
    if "catalyst.expressions.PythonUDF" in _plan(frame).toJSON():
        found.append("a Python function")
    return found


def _nodes(frame: DataFrame) -> list[str]:
    found: list[str] = []
    waiting = [_plan(frame)]
    while waiting:
        node = waiting.pop()
        found.append(str(node.nodeName()))
        children = node.children()
        waiting += [children.apply(number) for number in range(children.size())]
    return found


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()
