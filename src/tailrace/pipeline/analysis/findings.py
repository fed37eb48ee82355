"""Findings: the mistakes that Spark's analysis has found so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tailrace.declarations.mistakes import Mistake
from tailrace.declarations.place import Place
from tailrace.pipeline.source.decoding import SchemaUnusable

T = TypeVar("T")


class Findings:
    """Collects mistakes, one attempt at a time, so that one does not hide the next."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def add(self, place: Place, subject: str, expected: str, got: str, remedy: str) -> None:
        """Note a mistake."""
        self.mistakes.append(Mistake(place, subject, expected, got, remedy))

    def attempt(
        self, build: Callable[[], T], place: Place, subject: str, expected: str, got: str, remedy: str
    ) -> T | None:
        """What `build` gives; None, and a mistake with Spark's reason, where Spark refuses it."""
        try:
            return build()
        except PySparkException as error:
            reason = f"Spark says: {first_line(error)}"
        except SchemaUnusable as error:
            reason = f"The schema can't be used: {error}"
        self.add(place, subject, expected, got, f"{reason}\n    {remedy}")
        return None


def names_of(columns: DataFrame | StructType) -> str:
    """The columns that the user has declared; those of the metadata are the same everywhere."""
    names = columns.columns if isinstance(columns, DataFrame) else columns.fieldNames()
    return ", ".join(name for name in names if not name.startswith("_"))


def first_line(error: PySparkException) -> str:
    """Spark's message without the state, the position and the plan that follow it."""
    for line in str(error).splitlines():
        text = line.strip()
        if text:
            return text.partition(" SQLSTATE:")[0]
    return type(error).__name__
