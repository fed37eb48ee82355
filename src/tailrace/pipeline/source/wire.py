"""The Confluent wire format: a zero byte, the id of the writer's schema as four bytes, then the value as Avro binary.

A record is decoded with the schema that its id names, and resolved to the reader's schema: fields come by name or
alias, with defaults and promotions, whatever the writer had. Everything is a native Spark expression.

Spark does not look at a writer's schema before the first record comes, so that no schema fails a plan, and what does
not resolve gives nulls. `unusable` keeps away the schemas that nothing catches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tailrace.avro.writer_safety import unusable
from tailrace.pipeline.source.avro_envelope import MARK, enveloped

_HEADER = 5
_REST = 2**31 - 1
# Ids are positive: a header from here on has another magic byte, or an id that no registry gives.
_FIRST_FOREIGN = b"\x00\x80\x00\x00\x00"
_UNKNOWN = "tailrace: unknown schema id "
_UNKNOWN_ID = re.compile(re.escape(_UNKNOWN) + r"(\d{1,10})\b")


def decode(
    value: Column,
    reader: str,
    writers: Mapping[int, str],
    malformed: Collection[int] = (),
    *,
    subject: str,
    lenient: bool = False,
) -> Column:
    """A struct of `value`, of the reader's schema, and `whole`, which is `MARK` if the value was read to its end.

    The struct or its `whole` is null or differs from `MARK` if the record is malformed: no such header, an id out
    of `malformed`, bytes that are not what the writer's schema says, or a value that does not resolve to the reader's.
    An id that is neither in `writers` nor in `malformed` fails the query, and `unknown_ids` finds it in the error;
    lenient: it makes the record malformed instead.
    """
    target = enveloped(json.loads(reader))
    options = {"mode": "PERMISSIVE", "avroSchema": target}
    header = F.substring(value, 1, _HEADER)
    marked = F.concat(F.substring(value, _HEADER + 1, _REST), F.lit(MARK))
    # Never taken; gives the result its type as long as there is no writer.
    chosen = F.when(F.lit(False), from_avro(marked, target, options))
    refused = set(malformed)
    # The newest first: most records have it.
    for id in sorted(writers, reverse=True):
        if unusable(writers[id]) is not None:
            refused.add(id)
        elif id not in refused:
            decoded = from_avro(marked, enveloped(json.loads(writers[id])), options)
            chosen = chosen.when(header == F.lit(_header(id)), decoded)
    if refused:
        chosen = chosen.when(header.isin(*(F.lit(_header(id)) for id in sorted(refused))), F.lit(None))
    if not lenient:
        id_text = F.conv(F.hex(F.substring(value, 2, _HEADER - 1)), 16, 10)
        message = F.concat(F.lit(_UNKNOWN), id_text, F.lit(f" under subject {subject}"))
        chosen = chosen.otherwise(F.raise_error(message))
    return F.when((F.length(value) >= _HEADER) & (header < F.lit(_FIRST_FOREIGN)), chosen)


def unknown_ids(error_text: str) -> set[int]:
    """The ids that failed a query, out of the text of its error; empty if it failed for another reason."""
    return {int(id) for id in _UNKNOWN_ID.findall(error_text)}


def _header(id: int) -> bytes:
    return b"\x00" + id.to_bytes(_HEADER - 1, "big")
