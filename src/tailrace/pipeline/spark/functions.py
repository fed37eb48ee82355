"""Functions of our own in Spark's SQL; `classes` brings them into its JVM."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

# Where Spark finds the functions: `tailrace.json` is one of the catalog `tailrace`.
CATALOG = {"spark.sql.catalog.tailrace": "tailrace.Functions"}


def json(data: Column, schema: StructType, *, lenient: bool = False) -> Column:
    """The fields of one JSON object; null where the data is anything else, or a field has another type.

    lenient: NaN and infinity are numbers, as Spark itself writes them.
    """
    return F.call_function(f"tailrace.{'lenient_' if lenient else ''}json", data, F.lit(None).cast(schema))


def pack(data: Column) -> Column:
    """The bytes of a struct, as `Packed.java` says."""
    return F.call_function("tailrace.pack", data)


def unpack(data: Column, schema: StructType) -> Column:
    """The struct that was packed."""
    return F.call_function("tailrace.unpack", data, F.lit(None).cast(schema))
