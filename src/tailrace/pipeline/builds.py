"""Builds: which generation of a view this pipeline runs, and where its checkpoint is.

A build goes on where its checkpoint left off only if it is still the same thing: same definition, same source
topics, same changelog. Versions count from zero in a new checkpoint, so every new checkpoint is a new generation:
its rows supersede all rows of the generations before it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.catalog import CatalogView
from tailrace.errors import DefinitionChanged
from tailrace.pipeline.decoding import avro_schema
from tailrace.position import lineage
from tailrace.topics import Step, Topic, Where, WithColumns
from tailrace.views import View

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Build:
    """One generation of a view."""

    view: View
    generation: int
    checkpoint: Path


def definition(view: View, state_partitions: int) -> dict[str, object]:
    """What makes a view what it is, as plain data: a change of any of it is a change of the view."""
    return {
        "kind": "aggregate",
        **_source(view.source),
        "key": list(view.key),
        "columns": dict(view.columns),
        "state-partitions": state_partitions,
    }


def _source(topic: Topic) -> dict[str, object]:
    """What makes a topic what it is; what a topic does not use is left out."""
    found: dict[str, object] = {
        "topic": topic.name,
        "format": topic.format,
        "where": [step.condition for step in topic.steps if isinstance(step, Where)],
    }
    if topic.value is not None:
        found["value"] = " ".join(topic.value.split())
    if topic.format == "avro":
        found["schema"] = avro_schema(topic)
    if topic.key_format != "string":
        found["key-format"] = topic.key_format
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
    return ["dedupe", list(step.by)]


def choose_build(
    app: str, view: View, known: CatalogView | None, wanted: CatalogView, checkpoints: Path
) -> tuple[Build, CatalogView]:
    """Go on with the known build of a view, or start the next generation.

    `known` is the catalog's entry from the last start, `wanted` the entry of this start; the generation of the
    result is chosen here. Raises DefinitionChanged where the definition is not the one of the known build.
    """
    tag = lineage(app, view.name, wanted.topic_id)
    if known is None:
        return _build(view, _next_generation(view, tag, checkpoints), tag, wanted, checkpoints)
    if changes := _differences(known.definition, wanted.definition):
        raise DefinitionChanged(
            f"{view.place}: view {view.name!r} is not the one that generation {known.generation} was built from:\n"
            + "\n".join(f"    {line}" for line in changes)
            + "\n    Give the changed view a new name, or restore the definition; `tailrace dev --fresh` starts empty."
        )
    going_on, entry = _build(view, known.generation, tag, wanted, checkpoints)
    if known.topic_id != wanted.topic_id:
        reason = f"its changelog {wanted.changelog!r} was made anew"
    elif known.sources != wanted.sources:
        reason = "its source topic was made anew"
    elif not going_on.checkpoint.exists():
        reason = f"its checkpoint {going_on.checkpoint} is gone"
    else:
        return going_on, entry
    log.warning(
        "view %s: building generation %d from the earliest event, because %s", view.name, known.generation + 1, reason
    )
    return _build(view, known.generation + 1, tag, wanted, checkpoints)


def _build(view: View, generation: int, tag: str, wanted: CatalogView, checkpoints: Path) -> tuple[Build, CatalogView]:
    checkpoint = checkpoints / view.name / f"{tag}-{generation}"
    return Build(view, generation, checkpoint), replace(wanted, generation=generation)


def _next_generation(view: View, tag: str, checkpoints: Path) -> int:
    """One more than the newest checkpoint, so that a lost catalog does not bring an old build back."""
    found = (path.name.removeprefix(f"{tag}-") for path in (checkpoints / view.name).glob(f"{tag}-*"))
    return 1 + max((int(text) for text in found if text.isdigit()), default=0)


def _differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return [
        f"{name}: was {old.get(name)!r}, is {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
