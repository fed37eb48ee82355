"""Definitions: what makes a view what it is, as plain data; a change of any of it is a change of the view."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.declarations.topics import Dedupe, Step, Table, Topic, Where, WithColumns
from tailrace.declarations.views import AGGREGATE, AHEAD, Changelog, Feed, Source, View
from tailrace.pipeline.source.decoding import avro_key_schema, avro_schema


def definition(
    output: View | Feed, state_partitions: int, texts: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The definition of a view or feed; `texts` say what is declared as functions.

    A schema that a registry keeps is not part of it: a view stays with the one that it was built with.
    """
    kind = output.kind if isinstance(output, View) else "feed"
    found: dict[str, object] = {"kind": kind, "key": list(output.key), "state-partitions": state_partitions}
    if kind == AGGREGATE:
        found.update(_source(output.source))
    else:
        found["sources"] = {alias: _source(source) for alias, source in output.sources}
    if isinstance(output.columns, Mapping):
        found["columns"] = dict(output.columns)
    found.update(texts or {})
    if isinstance(output, View):
        if output.window is not None:
            window = output.window
            found["window"] = [window.size, window.slide, window.at, window.late, window.keep]
            if window.ahead != AHEAD:
                found["ahead"] = window.ahead
        if output.how:
            found["how"] = output.how
    return found


def same_but_texts(known: Mapping[str, object], output: View | Feed, state_partitions: int) -> bool:
    """Whether an output is what it was, as far as can be told before the analysis."""
    return all(known.get(name) == value for name, value in definition(output, state_partitions).items())


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """What is not the same in two definitions, a line each."""
    return [
        f"{name}: was {old.get(name)!r}, is {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _source(source: Source) -> dict[str, object]:
    if isinstance(source, Changelog):
        return {"view": source.view.name, "topic": source.name, "steps": [_step(step) for step in source.steps]}
    if isinstance(source, Table):
        return {**_topic(source.records), "table-key": list(source.key)}
    return _topic(source)


def _topic(topic: Topic) -> dict[str, object]:
    """What makes a topic what it is; what a topic does not use is left out."""
    found: dict[str, object] = {
        "topic": topic.name,
        "format": topic.format,
        "where": [step.condition for step in topic.steps if isinstance(step, Where)],
    }
    if topic.value is not None:
        found["value"] = " ".join(topic.value.split())
    if topic.format == "avro" and topic.schema is not None:
        found["schema"] = avro_schema(topic)
    if topic.key_format != "string":
        found["key-format"] = topic.key_format
    if topic.key_format == "json":
        found["key-schema"] = " ".join((topic.key_schema or "").split())
    if topic.key_format == "avro" and topic.key_schema is not None:
        found["key-schema"] = avro_key_schema(topic)
    if topic.registry:
        found["registry"] = True
    if topic.expect is not None:
        found["expect"] = topic.expect
    if not all(isinstance(step, Where) for step in topic.steps):
        found["steps"] = [_step(step) for step in topic.steps]
    return found


def _step(step: Step) -> list[object]:
    if isinstance(step, Where):
        return ["where", step.condition]
    if isinstance(step, WithColumns):
        return ["with-columns", dict(step.columns)]
    return _dedupe(step)


def _dedupe(step: Dedupe) -> list[object]:
    more = {name: value for name, value in (("header", step.header), ("within", step.within)) if value is not None}
    return ["dedupe", list(step.by), *([more] if more else [])]
