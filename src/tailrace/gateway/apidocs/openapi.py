"""The OpenAPI document: the general routes, made concrete for every view, feed and topic of the catalog.

Until a catalog is known, the routes stay general: `/views/{view}/{key}`. With one, each view has paths of its
own, with the types of its key and its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any
from urllib.parse import quote

from tailrace.contracts.catalog import Catalog, CatalogTopic, CatalogView, Column
from tailrace.events.codecs import Codec, TopicCodecs, declared
from tailrace.events.records import MOST
from tailrace.types import spark
from tailrace.types.json_schema import example, schema

Json = dict[str, Any]

# The parts of general paths that names replace.
_VIEW, _FEED, _TOPIC = "{view}", "{feed}", "{topic}"
_PAGE: Json = {"rows": [], "position": "4be1a27c.1.0-17.1-4", "as_of": 1790000000000, "next": None}


def document(
    general: Mapping[str, Any],
    catalog: Catalog | None,
    codecs_of: Callable[[CatalogTopic], TopicCodecs | None] = declared,
) -> Json:
    """The document of an app with these general routes. `codecs_of` gives the codecs of a topic."""
    found: Json = deepcopy(dict(general))
    if catalog is None:
        return found
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    tags: list[Json] = []
    codecs = {topic.name: codecs_of(topic) for topic in catalog.topics.values() if topic.accept}
    paths: Json = {}
    for path, item in found["paths"].items():
        if _VIEW in path:
            for view in catalog.views.values():
                paths[path.replace(_VIEW, quote(view.name))] = _of(item, "view", view.name, _view_adapter(view))
        elif _FEED in path:
            for feed in catalog.feeds.values():
                paths[path.replace(_FEED, quote(feed.name))] = _of(item, "feed", feed.name, _as_it_is)
        elif _TOPIC in path:
            for topic, held in codecs.items():
                adapt = partial(_type_events, codecs=held, name=event_name(topic)) if held is not None else _as_it_is
                paths[path.replace(_TOPIC, quote(topic))] = _of(item, "topic", topic, adapt)
        else:
            paths[path] = item
    found["paths"] = paths
    for view in catalog.views.values():
        schemas[row_name(view.name)] = view_schema(view)
        tags.append({"name": f"view {view.name}", "description": _summary(view)})
    for feed in catalog.feeds.values():
        schemas[event_name(feed.name)] = schema(spark.row(columns_of(feed.key, feed.columns)))
        tags.append({"name": f"feed {feed.name}"})
    for topic, held in codecs.items():
        if held is not None:
            schemas[event_name(topic)] = _event_schema(held)
            tags.append({"name": f"topic {topic}"})
    # The app's own sections come first, and a section without operations is left out.
    operations = [one for item in paths.values() for one in item.values() if isinstance(one, dict)]
    used = {tag for operation in operations for tag in operation.get("tags", ())}
    found["tags"] = tags + [tag for tag in found.get("tags", []) if tag["name"] in used]
    return found


def view_schema(view: CatalogView) -> Json:
    """The JSON schema of a view's rows."""
    columns = columns_of(view.key, view.columns)
    held = spark.row(columns, never_null=[column.name for column in view.key])
    return {**schema(held), "examples": [example(held)]}


def columns_of(first: tuple[Column, ...], others: tuple[Column, ...]) -> tuple[Column, ...]:
    """All columns of a row, each once."""
    names = {column.name for column in first}
    return (*first, *(column for column in others if column.name not in names))


def row_name(view: str) -> str:
    """The name of a view's schema."""
    return f"{view}.row"


def event_name(name: str) -> str:
    """The name of the schema of a feed's or a topic's events."""
    return f"{name}.event"


def page_schema(view: str) -> Json:
    """The JSON schema of a page of a listing."""
    row = {"$ref": f"#/components/schemas/{row_name(view)}"}
    return {
        "type": "object",
        "required": ["rows", "position", "as_of", "next"],
        "additionalProperties": False,
        "properties": {
            "reset": {
                "type": "object",
                "description": "If `after` can't be honoured: these are all rows.",
                "required": ["reason", "message"],
                "properties": {"reason": {"type": "string"}, "message": {"type": "string"}},
            },
            "rows": {"type": "array", "items": row},
            "gone": {"type": "array", "items": {"type": "object"}, "description": "With `after`: keys, as columns."},
            "position": {"type": "string"},
            "as_of": {"type": ["integer", "null"], "description": "When the view was complete, in ms since 1970."},
            "next": {"type": ["string", "null"], "description": "`page` of the next page; null after the last."},
        },
    }


_Adapter = Callable[[Json], None]


def _of(item: Mapping[str, Any], what: str, name: str, adapt: _Adapter) -> Json:
    """A path of the general document for one view, feed or topic."""
    found: Json = deepcopy(dict(item))
    for method, operation in found.items():
        if not isinstance(operation, dict):
            continue
        operation["parameters"] = [one for one in operation.get("parameters", []) if one.get("name") != what]
        operation["operationId"] = f"{operation.get('operationId', method)}-{name}"
        operation["tags"] = [f"{what} {name}"]
        # `default` keeps FastAPI from adding an answer of its own. A concrete path names all its answers.
        operation["responses"].pop("default", None)
        adapt(operation)
    return found


def _as_it_is(_: Json) -> None:
    """Leave an operation general."""


def _view_adapter(view: CatalogView) -> _Adapter:
    values = [*example(spark.row(view.key)).values()]
    sample = values[0] if len(values) == 1 else json.dumps(values, separators=(",", ":"))
    key = {**key_schema(view), "examples": [sample]}

    def adapt(operation: Json) -> None:
        listing = not any(one["name"] == "key" and one["in"] == "path" for one in operation["parameters"])
        for parameter in operation["parameters"]:
            if parameter["name"] == "key" and parameter["in"] == "path":
                parameter["schema"] = key
                parameter.pop("example", None)
        content = operation["responses"].get("200", {}).get("content", {}).get("application/json")
        if content is not None:
            content["schema"] = (
                page_schema(view.name) if listing else {"$ref": f"#/components/schemas/{row_name(view.name)}"}
            )
            content.pop("examples", None)
            row = example(spark.row(columns_of(view.key, view.columns)))
            content["example"] = {**_PAGE, "rows": [row]} if listing else row

    return adapt


def key_schema(view: CatalogView) -> Json:
    """The schema of a key in a path: the value of one column, or a JSON array of several values as text."""
    if len(view.key) > 1:
        return {"type": "string", "description": f"A JSON array of {', '.join(c.name for c in view.key)}."}
    return schema(spark.read(view.key[0].type))


def _summary(view: CatalogView) -> str:
    columns = columns_of(view.key, view.columns)
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def _event_schema(codecs: TopicCodecs) -> Json:
    """The JSON schema of the events that a topic takes."""
    found = schema(codecs.value.type)
    if "properties" not in found:
        return found
    properties = {**found["properties"]}
    for name in codecs.topic.key_columns:
        if name not in properties:
            properties[name] = _key_column(codecs.key, name)[0]
    return {**found, "properties": properties, "examples": [_event(codecs)]}


def _type_events(operation: Json, *, codecs: TopicCodecs, name: str) -> None:
    """Give a topic's operation the types of its events. `name` is that of their schema."""
    event = {"$ref": f"#/components/schemas/{name}"}
    sample = _event(codecs)
    for kind, held in operation.get("requestBody", {}).get("content", {}).items():
        held.pop("examples", None)
        if kind == "application/json":
            one, held["example"] = event, sample
        else:
            one, held["example"] = _wrapped(event, codecs), [{"key": example(codecs.key.type), "value": sample}]
        several = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST}
        held["schema"] = {"anyOf": [one, several]}


def _wrapped(event: Json, codecs: TopicCodecs) -> Json:
    # The value null deletes a table's key.
    value = {"anyOf": [event, {"type": "null"}]} if codecs.topic.key_columns else event
    return {
        "type": "object",
        "required": ["value"],
        "additionalProperties": False,
        "properties": {
            "key": schema(codecs.key.type),
            "value": value,
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }


def _event(codecs: TopicCodecs) -> Any:
    found = example(codecs.value.type)
    if not isinstance(found, dict):
        return found
    return {**{name: _key_column(codecs.key, name)[1] for name in codecs.topic.key_columns}, **found}


def _key_column(key: Codec, name: str) -> tuple[Json, Any]:
    """The schema and an example of a column of the record key."""
    field = next((field.type for field in key.type.fields if field.name == name), key.type)
    return schema(field), example(field)
