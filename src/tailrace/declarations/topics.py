"""Topics and tables: Kafka topics read as events, or as the latest value per key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.declarations.place import Place, calling_place


@dataclass(frozen=True)
class Where:
    """A step: keeps the events for which the SQL condition holds. A row of a table that does not meet it is gone."""

    condition: str
    place: Place


@dataclass(frozen=True)
class WithColumns:
    """A step: adds columns (name, SQL expression), or replaces those of the same name.

    All of them are computed from the columns before the step.
    """

    columns: tuple[tuple[str, str], ...]
    place: Place


@dataclass(frozen=True)
class Dedupe:
    """A step: of the events with the same values in the columns `by`, or in a header, only the first continues.

    An event that lacks one of them is like no other and continues. Without both, topic, partition and offset identify
    an event. `within` limits how long an event is remembered.
    """

    by: tuple[str, ...]
    header: str | None
    within: str | None
    place: Place

    @property
    def remembers(self) -> bool:
        """Whether there is anything to remember: Spark itself takes each offset into a view's state only once."""
        return bool(self.by) or self.header is not None


Step = Where | WithColumns | Dedupe


@dataclass(frozen=True)
class Topic:
    """A Kafka topic read as events.

    `value` is the schema of the record value as DDL text ("movie_id long, rating double"); with the format `avro`,
    `schema` takes its place, or a schema registry. `key_schema` does the same for the record key. `expect` is the rule
    that every record must meet. `steps` are what `where`, `with_columns` and `dedupe` have added, in their order.
    `accept` says that clients of the gateway may write to it.
    """

    name: str
    value: str | None
    format: str
    key_format: str
    schema: str | None
    expect: str | None
    steps: tuple[Step, ...]
    place: Place
    key_schema: str | None = None
    registry: bool = False
    accept: bool = False

    def where(self, condition: str) -> Topic:
        """The same topic, with only the events for which the SQL condition holds."""
        return self._then(Where(condition, calling_place()))

    def with_columns(self, **columns: str) -> Topic:
        """The same topic with more columns, each computed by a Spark SQL expression: `hour="hour(_timestamp)"`.

        A column may replace one of the same name. None of them sees the others of the same call.
        """
        return self._then(WithColumns(tuple(columns.items()), calling_place()))

    def dedupe(self, by: str | Sequence[str] = (), *, header: str | None = None, within: str | None = None) -> Topic:
        """The same topic without repeated events: the first with a message id counts.

        by: the column, or columns, that hold the id; header: the header that holds it. Without both, topic, partition
            and offset identify an event.
        within: how long an id is remembered, such as `"1 hour"`, by the timestamps of the records. Records that are
            older than the newest by more are dropped and counted as `late`. Without it every id is kept in the state of
            each view over the topic, for as long as the view lives.
        """
        columns = (by,) if isinstance(by, str) else tuple(by)
        return self._then(Dedupe(columns, header, within, calling_place()))

    def _then(self, step: Step) -> Topic:
        return replace(self, steps=(*self.steps, step))


@dataclass(frozen=True)
class Table:
    """A Kafka topic read as the latest value per record key; a null value deletes the key.

    `key` names the columns that the record key becomes: one for a plain key, or fields of a key with a schema.
    """

    records: Topic
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the Kafka topic."""
        return self.records.name

    @property
    def place(self) -> Place:
        """Where the table is declared."""
        return self.records.place

    def where(self, condition: str) -> Table:
        """The same table without the rows for which the SQL condition does not hold: for readers these are gone."""
        return replace(self, records=self.records.where(condition))

    def with_columns(self, **columns: str) -> Table:
        """The same table with more columns, each computed by a Spark SQL expression."""
        return replace(self, records=self.records.with_columns(**columns))
