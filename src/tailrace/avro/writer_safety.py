"""Which writer schemas are safe for Spark: with others, a few bytes can end the JVM, or keep it busy for ever."""

from __future__ import annotations

import json
from typing import Any

from tailrace.avro.names import NAMED, PRIMITIVES, full_name, meant, namespace_of


class _Unusable(Exception):
    """The text says why."""


def unusable(schema: str) -> str | None:
    """Why records written with this Avro schema can't be read; None if they can.

    A value of a recursive type may be as deep as it is long, and Avro reads it on the stack, even if the
    reader leaves it out: the overflow ends the JVM. If the reader leaves out an array, Avro skips as many
    items as the array says, one by one. If items take no bytes, nothing bounds their number.
    """
    try:
        _Walk().takes_bytes(json.loads(schema), "")
    except _Unusable as reason:
        return str(reason)
    except (ValueError, KeyError, TypeError, AttributeError):
        return "it is not an Avro schema"
    except RecursionError:
        return "it is nested too deeply"
    return None


class _Walk:
    """Visits a schema depth first, and knows for each named type whether its values take at least one byte."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._known: dict[str, bool] = {}

    def takes_bytes(self, node: Any, namespace: str) -> bool:
        if isinstance(node, str):
            return self._name(node, namespace)
        if isinstance(node, list):
            for branch in node:
                self.takes_bytes(branch, namespace)
            return True
        kind = node["type"]
        if kind == "array":
            if not self.takes_bytes(node["items"], namespace):
                raise _Unusable("it has an array of items that take no bytes")
            return True
        if kind == "map":
            self.takes_bytes(node["values"], namespace)
            return True
        if not isinstance(kind, str) or kind not in NAMED:
            return self.takes_bytes(kind, namespace)
        return self._define(full_name(node, namespace), node)

    def _name(self, name: str, namespace: str) -> bool:
        if name in PRIMITIVES:
            return name != "null"
        if meant(name, namespace, self._open) is not None:
            raise _Unusable(f"its type {name} is recursive")
        found = meant(name, namespace, self._known)
        if found is None:
            raise _Unusable(f"it names the type {name} and does not define it")
        return self._known[found]

    def _define(self, name: str, node: Any) -> bool:
        if node["type"] == "fixed":
            takes = int(node["size"]) > 0
        elif node["type"] == "enum":
            takes = True
        else:
            self._open.add(name)
            fields = [self.takes_bytes(field["type"], namespace_of(name)) for field in node["fields"]]
            takes = any(fields)
            self._open.remove(name)
        self._known[name] = takes
        return takes
