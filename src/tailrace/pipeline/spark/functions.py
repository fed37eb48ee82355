"""Functions that Spark's SQL lacks: our own where the part that has them is active, or else expressions of Spark's."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.pipeline.spark import spark_json
from tailrace.pipeline.spark.jvm_parts import JSON, active


def json(data: Column, schema: StructType, *, lenient: bool = False) -> Column:
    """The fields of one JSON object; null if the data is anything else, or a field has another type.

    lenient: NaN and infinity are numbers, as Spark itself writes them.
    """
    if JSON not in active():
        return spark_json.json(data, schema, lenient=lenient)
    return F.call_function(f"tailrace.{'lenient_' if lenient else ''}json", data, F.lit(None).cast(schema))


def pack(data: Column) -> Column:
    """The bytes of a struct, as `Packed.java` says."""
    return F.call_function("tailrace_rows.pack", data)


def unpack(data: Column, schema: StructType) -> Column:
    """The struct that was packed."""
    return F.call_function("tailrace_rows.unpack", data, F.lit(None).cast(schema))


def kafka_partition(key: Column, partitions: int) -> Column:
    """The partition of a text key among so many, as Kafka's own clients choose it: its murmur2."""
    data = key.cast("binary")
    hexed, length = F.hex(data), F.octet_length(data).cast("long")
    words = F.floor(length / 4).cast("int")
    # Sums and products of 32 bits are done in 64 and cut.
    mixed = F.aggregate(
        F.when(words > 0, F.sequence(F.lit(0), words - 1)).otherwise(F.array().cast("array<int>")),
        length.bitwiseXOR(F.lit(0x9747B28C)),
        lambda hash, place: _times(hash).bitwiseXOR(_scrambled(_little_endian(hexed, place, (3, 2, 1, 0)))),
    )
    rest = mixed.bitwiseXOR(_little_endian(hexed, words, (2, 1, 0)))
    mixed = F.when(length % 4 == 0, mixed).otherwise(_times(rest))
    mixed = _times(mixed.bitwiseXOR(F.shiftrightunsigned(mixed, 13)))
    mixed = mixed.bitwiseXOR(F.shiftrightunsigned(mixed, 15))
    return (mixed.bitwiseAND(F.lit(0x7FFFFFFF)) % partitions).cast("int")


def _times(number: Column) -> Column:
    return (number * F.lit(0x5BD1E995).cast("long")).bitwiseAND(F.lit(0xFFFFFFFF))


def _scrambled(word: Column) -> Column:
    first = _times(word)
    return _times(first.bitwiseXOR(F.shiftrightunsigned(first, 24)))


def _little_endian(hexed: Column, word: Column, places: tuple[int, ...]) -> Column:
    """The number in some bytes of a word, the last one first; bytes behind the end are none."""
    parts = [F.substring(hexed, word * 8 + 2 * place + 1, F.lit(2)) for place in places]
    return F.coalesce(F.conv(F.concat(*parts), 16, 10).cast("long"), F.lit(0).cast("long"))
