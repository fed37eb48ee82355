"""Topics: Kafka topics read as events."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.place import Place, calling_place


@dataclass(frozen=True)
class Topic:
    """A Kafka topic read as events.

    `value` is the schema of the record value as DDL text ("movie_id long, rating double"); `conditions` are
    the SQL conditions that `where` has added, all of which must hold for an event to count.
    """

    name: str
    value: str
    format: str
    conditions: tuple[str, ...]
    place: Place

    def where(self, condition: str) -> Topic:
        """The same topic, seen only where the SQL condition holds."""
        return replace(self, conditions=(*self.conditions, condition), place=calling_place())
