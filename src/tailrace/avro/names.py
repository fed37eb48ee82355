"""Names in Avro schemas: what a name means in its place, which named types a schema defines, and inlining them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})

Definition = Mapping[str, Any]


def full_name(definition: Definition, enclosing: str) -> str:
    """The full name of a named type that is defined inside a namespace."""
    name = str(definition["name"])
    namespace = definition.get("namespace", enclosing)
    return name if "." in name or not namespace else f"{namespace}.{name}"


def namespace_of(name: str) -> str:
    """The namespace of a full name; empty if it has none."""
    return name.rpartition(".")[0]


def meant(name: str, namespace: str, known: Container[str]) -> str | None:
    """The full name that a name means inside a namespace; None if it is not `known`."""
    candidates = (name,) if "." in name or not namespace else (f"{namespace}.{name}", name)
    return next((candidate for candidate in candidates if candidate in known), None)


def definitions(schema: Any, namespace: str = "") -> Iterator[tuple[str, Definition]]:
    """Every named type that a schema defines, by full name."""
    if isinstance(schema, list):
        for branch in schema:
            yield from definitions(branch, namespace)
    elif isinstance(schema, dict):
        if schema.get("type") in NAMED:
            name = full_name(schema, namespace)
            yield name, schema
            for field in schema.get("fields", ()):
                yield from definitions(field["type"], namespace_of(name))
        else:
            for part in ("type", "items", "values"):
                yield from definitions(schema.get(part), namespace)


def inlined(schema: Any, referenced: Mapping[str, Definition]) -> Any:
    """The schema, with each referenced type defined at its first use and named after that."""
    return _Inlining(referenced).walk(schema, "")


class _Inlining:
    def __init__(self, referenced: Mapping[str, Definition]) -> None:
        self._referenced = referenced
        self._defined: set[str] = set()

    def walk(self, node: Any, namespace: str) -> Any:
        if isinstance(node, str):
            return self._name(node, namespace)
        if isinstance(node, list):
            return [self.walk(branch, namespace) for branch in node]
        if node.get("type") in NAMED:
            return self._define(full_name(node, namespace), node)
        return {k: self.walk(v, namespace) if k in ("type", "items", "values") else v for k, v in node.items()}

    def _name(self, name: str, namespace: str) -> Any:
        if name in PRIMITIVES or name in ("array", "map") or meant(name, namespace, self._defined) is not None:
            return name
        found = meant(name, namespace, self._referenced)
        return name if found is None else self._define(found, self._referenced[found])

    def _define(self, name: str, node: Definition) -> Any:
        if name in self._defined:
            return name
        self._defined.add(name)
        space = namespace_of(name)
        # The namespace is explicit, because the place of use may be in another one.
        definition = {**node, "name": name.rpartition(".")[2], "namespace": space}
        if "fields" in node:
            definition["fields"] = [{**field, "type": self.walk(field["type"], space)} for field in node["fields"]]
        return definition
