"""JSON by Spark's own `from_json`, as strict as the part `json`: what the plans have if that part is off.

`from_json` stops after the first value, and takes numbers that their types can't hold: infinity for 1e400, -56 for 200
as a `tinyint`, a time that has wrapped around for a large number of seconds. It writes a decimal out before it counts
its digits, for hours if the exponent is large. So a record is read twice in one document of ours:

    {"list": [RECORD], "value": RECORD, "whole": true}

Only a record that is exactly one value is good in both places. `value` has the row; `list` has it once more, where
exponents of more than four digits are cut to 9999 (as good as infinite), for decimals, and as text, for what can only
be checked there. One thing is not as the part has it: a number that no double holds, in a field that is declared as
`string`, would become another one, and is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_CORRUPT = "corrupt"
# Objects and arrays may be nested 1,000 deep; the document of ours adds two.
_DEPTH = 1002
# A number of seconds that has more microseconds than a long holds.
_MOST_SECONDS = (2**63 - 1) // 1_000_000
# Numbers that may be cut where they are written out: of more digits than a double has, or with a large exponent.
_INEXACT = r"[0-9.]{16}|[0-9][eE][+-]?[0-9]{3}"
# A number that stands for an infinity, if no double holds it.
_ENORMOUS = r"[0-9][eE][+]?[0-9]{2}|[0-9]{39}"
_FLOAT = r"-?[0-9]+[.][0-9]+(?:E-?[0-9]+)?"
_NAMED = ("Infinity", "+Infinity", "-Infinity", "INF", "+INF", "-INF")


def json(data: Column, schema: StructType, *, lenient: bool) -> Column:
    """The fields of one JSON object, or null, as `functions.json` says."""
    record = data.cast("string")
    document = F.concat(F.lit('{"list":['), _cut(record), F.lit('],"value":'), record, F.lit(',"whole":true}'))
    parsed = F.from_json(
        F.when(F.is_valid_utf8(record), document),
        StructType(
            [
                StructField("list", ArrayType(_mapped(schema, _checked_type))),
                StructField("value", _mapped(schema, _value_type)),
                StructField("whole", BooleanType()),
                StructField(_CORRUPT, StringType()),
            ]
        ),
        {
            "columnNameOfCorruptRecord": _CORRUPT,
            "allowSingleQuotes": "false",
            "allowNonNumericNumbers": str(lenient).lower(),
            "maxNestingDepth": str(_DEPTH),
            "maxStringLen": str(2**31 - 1),
            "timeZone": "UTC",
        },
    )

    def read(document: Column) -> Column:
        value, checked = document.getField("value"), document.getField("list").getItem(0)
        good = document.getField(_CORRUPT).isNull() & document.getField("whole") & value.isNotNull()
        bad = _bad(value, checked, schema, record, lenient=lenient)
        if bad is not None:
            good = good & ~F.coalesce(bad, F.lit(False))
        return F.when(good, _narrowed(value, checked, schema, record))

    # Within a function of its own, so that the document is parsed once.
    return F.get(F.transform(F.array(parsed), read), F.lit(0))


def _cut(record: Column) -> Column:
    """The record with numbers that can be written out; what was another number is beyond any decimal, or zero."""
    short = F.regexp_replace(record, "([0-9.][eE][+-]?)0*[1-9][0-9]{4,}", "$19999")
    return F.regexp_replace(short, "[0-9][0-9.,]{1000,}", "x")


def _mapped(type: DataType, leaf: Callable[[DataType], DataType]) -> DataType:
    if isinstance(type, StructType):
        return StructType([StructField(one.name, _mapped(one.dataType, leaf)) for one in type])
    if isinstance(type, ArrayType):
        return ArrayType(_mapped(type.elementType, leaf))
    if isinstance(type, MapType):
        return MapType(type.keyType, _mapped(type.valueType, leaf))
    return leaf(type)


def _value_type(type: DataType) -> DataType:
    if isinstance(type, DecimalType):
        return StringType()
    return IntegerType() if isinstance(type, ByteType) else type


def _checked_type(type: DataType) -> DataType:
    return type if isinstance(type, DecimalType) else StringType()


def _narrowed(value: Column, checked: Column, type: DataType, record: Column) -> Column:
    """The value as its type has it: decimals come from the other copy."""
    if not _some(type, DecimalType | ByteType | StringType):
        return value
    if isinstance(type, DecimalType):
        return checked
    if isinstance(type, ByteType):
        return value.cast(type)
    if isinstance(type, StringType):
        return F.when(_exact(value, record), value)
    if isinstance(type, StructType):
        fields = [
            _narrowed(value.getField(one.name), checked.getField(one.name), one.dataType, record).alias(one.name)
            for one in type
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(type, ArrayType):
        element = type.elementType
        return F.zip_with(value, checked, lambda one, other: _narrowed(one, other, element, record))
    assert isinstance(type, MapType)  # noqa: S101
    held = type.valueType
    return F.map_zip_with(value, checked, lambda _, one, other: _narrowed(one, other, held, record))


def _exact(text: Column, record: Column) -> Column:
    """Whether numbers that are taken as text are those of the record."""
    numbers = F.when(
        text.rlike(r'^(\[|\{|"-?Infinity"$|-?[0-9.]+(E-?[0-9]+)?$)'),
        F.regexp_extract_all(text, F.lit(f"({_FLOAT}|Infinity)")),
    )
    other = F.exists(numbers, lambda number: ~F.rlike(record, _spelled(number)))
    return text.isNull() | ~record.rlike(_INEXACT) | ~F.coalesce(other, F.lit(False))


def _spelled(number: Column) -> Column:
    """A pattern for a number as it stands in a record, whole, whatever zeros follow it."""
    return F.concat(F.lit("(?<![0-9.])"), F.replace(number, F.lit("."), F.lit("[.]")), F.lit("0*(?![0-9.eE])"))


def _bad(value: Column, checked: Column, type: DataType, record: Column, *, lenient: bool) -> Column | None:
    """Whether some number is beyond its type; None if the type has none that could be."""
    if isinstance(type, ByteType):
        return ~value.between(-128, 127)
    if isinstance(type, TimestampType):
        return F.abs(checked.cast("decimal(38,0)")) > F.lit(_MOST_SECONDS)
    if isinstance(type, DoubleType | FloatType):
        infinite = F.abs(value) == F.lit(math.inf)
        return infinite & ~checked.isin(*_NAMED) & record.rlike(_ENORMOUS) if lenient else infinite
    if isinstance(type, StructType):
        found = None
        for one in type:
            bad = _bad(value.getField(one.name), checked.getField(one.name), one.dataType, record, lenient=lenient)
            if bad is not None:
                bad = F.coalesce(bad, F.lit(False))
                found = bad if found is None else found | bad
        return found
    if isinstance(type, ArrayType | MapType):
        element = type.elementType if isinstance(type, ArrayType) else type.valueType
        if _bad(value, checked, element, record, lenient=lenient) is None:
            return None

        def of(one: Column, other: Column) -> Column:
            bad = _bad(one, other, element, record, lenient=lenient)
            assert bad is not None  # noqa: S101
            return F.coalesce(bad, F.lit(False))

        if isinstance(type, ArrayType):
            return F.exists(F.zip_with(value, checked, of), lambda bad: bad)
        return F.exists(
            F.map_values(F.map_zip_with(value, checked, lambda _, one, other: of(one, other))), lambda bad: bad
        )
    return None


def _some(type: DataType, wanted: object) -> bool:
    """Whether a type has a leaf of some kind."""
    if isinstance(type, StructType):
        return any(_some(one.dataType, wanted) for one in type)
    if isinstance(type, ArrayType):
        return _some(type.elementType, wanted)
    if isinstance(type, MapType):
        return _some(type.valueType, wanted)
    return isinstance(type, wanted)  # type: ignore[arg-type]
