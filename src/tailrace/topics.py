"""Topics: Kafka topics read as events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.place import Place, calling_place


@dataclass(frozen=True)
class Where:
    """A step: only events for which the SQL condition holds go on."""

    condition: str
    place: Place


@dataclass(frozen=True)
class WithColumns:
    """A step: columns (name, SQL expression) that are added, or take the place of those of the same name.

    All of them are computed from the columns before the step.
    """

    columns: tuple[tuple[str, str], ...]
    place: Place


@dataclass(frozen=True)
class Dedupe:
    """A step: of the events that have the same values in the columns `by`, only the first goes on.

    An event with null in one of them is like no other and goes on.
    """

    by: tuple[str, ...]
    place: Place


Step = Where | WithColumns | Dedupe


@dataclass(frozen=True)
class Topic:
    """A Kafka topic read as events.

    `value` is the schema of the record value as DDL text ("movie_id long, rating double"); with the format `avro`,
    `schema` takes its place. `expect` is the rule that every record must meet. `steps` are what `where`,
    `with_columns` and `dedupe` have added, in their order.
    """

    name: str
    value: str | None
    format: str
    key_format: str
    schema: str | None
    expect: str | None
    steps: tuple[Step, ...]
    place: Place

    def where(self, condition: str) -> Topic:
        """The same topic, seen only where the SQL condition holds."""
        return self._then(Where(condition, calling_place()))

    def with_columns(self, **columns: str) -> Topic:
        """The same topic with more columns, each computed by a Spark SQL expression: `hour="hour(_timestamp)"`.

        A column may replace one of the same name. None of them sees the others of the same call.
        """
        return self._then(WithColumns(tuple(columns.items()), calling_place()))

    def dedupe(self, by: str | Sequence[str]) -> Topic:
        """The same topic without repeated events: the first with the values of `by` counts, such as a message id.

        Every value that has been seen is kept in the state of each view over it, for as long as the view lives.
        """
        return self._then(Dedupe((by,) if isinstance(by, str) else tuple(by), calling_place()))

    def _then(self, step: Step) -> Topic:
        return replace(self, steps=(*self.steps, step))
