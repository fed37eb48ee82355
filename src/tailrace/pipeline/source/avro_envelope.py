"""The wrapper around every Avro value: it tells a whole value from one that ends early or late, or can't be read."""

from __future__ import annotations

import json

# Follows every Avro value, so that a value that ends early or late is seen.
MARK = b"\x93tailrac"


def enveloped(schema: object) -> str:
    """An Avro schema inside a record that ends with the mark: `value` is of the schema, `whole` is the mark.

    For bytes that it can't decode Spark gives a record of nulls, which a good record may be as well; inside the
    wrapper the two differ. The wrapper has no namespace, so that names in the schema mean what they did.
    """
    mark = {"type": "fixed", "name": "tailrace_mark", "size": len(MARK)}
    fields = [{"name": "value", "type": schema}, {"name": "whole", "type": mark}]
    return json.dumps({"type": "record", "name": "tailrace_record", "fields": fields})
