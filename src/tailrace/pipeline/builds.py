"""Builds: which generation of a view this pipeline runs, and where its checkpoint is.

A build goes on where its checkpoint left off only if it is still the same thing: same definition, same source
topics, same changelog. Versions count from zero in a new checkpoint, so every new checkpoint is a new generation:
its rows supersede all rows of the generations before it. While a new generation is being built, readers keep the
rows of the one before: the catalog has the new one as `next`, until it is handed over.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailrace.catalog import CatalogView
from tailrace.errors import DefinitionChanged
from tailrace.pipeline.definitions import differences
from tailrace.position import lineage
from tailrace.requests import Request
from tailrace.views import Feed, View

log = logging.getLogger(__name__)

# How Spark spells the earliest offset of a partition.
_EARLIEST = -2


@dataclass(frozen=True)
class Build:
    """One generation of a view or feed. `starts`: from which offsets it reads; the earliest where there are none.

    `origin` tells a feed's source topic from one of the same name that was there before; empty for views.
    """

    output: View | Feed
    generation: int
    checkpoint: Path
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    origin: str = ""


@dataclass(frozen=True)
class Chosen:
    """What to run, and what the catalog is to say of it."""

    build: Build
    entry: CatalogView

    @property
    def handing_over(self) -> bool:
        """Whether the build is to take the place of another when it is done."""
        return self.entry.next is not None


def choose_build(
    app: str,
    output: View | Feed,
    known: CatalogView | None,
    wanted: CatalogView,
    checkpoints: Path,
    request: Request | None = None,
    *,
    above: int = 0,
) -> Chosen:
    """Go on with a known build of a view, or start the next generation.

    `known` is the catalog's entry from the last start, `wanted` the entry of this start; the generation of the
    result is chosen here; it is above `above`, the highest that the changelog is known to hold. `request` is what an
    operator has asked for. Raises DefinitionChanged where the definition is
    not the one of the known build, and nobody has asked for another.
    """
    places = _Places(app, output, wanted.topic_id, checkpoints)
    if known is None:
        return _served(places, max(places.next_generation(), above + 1), wanted)
    newest = known.next or known
    # A build that was given up has left records of its generation behind: its number is not used again.
    following = max(newest.generation + 1, places.next_generation())
    if known.topic_id != wanted.topic_id:
        # What the store holds belongs to the changelog that is no more: there is nothing to keep.
        _tell(output.name, following, f"its changelog {wanted.changelog!r} was made anew")
        return _served(places, following, wanted)
    if request is not None and request.after == newest.generation:
        _tell(output.name, following, request.why)
        return _next(places, following, wanted, known, request.starts)
    entry = next((entry for entry in (newest, known) if entry.definition == wanted.definition), None)
    if entry is None:
        raise _changed(app, output, newest, wanted)
    if entry.sources != wanted.sources:
        reason = "a source topic was made anew"
    elif not places.checkpoint(entry.generation).exists():
        reason = f"its checkpoint {places.checkpoint(entry.generation)} is gone"
    elif entry is known:
        return _served(places, known.generation, replace(wanted, since=known.since), known.starts)
    else:
        return _next(places, entry.generation, wanted, known, entry.starts)
    _tell(output.name, following, reason)
    return _next(places, following, wanted, known, {})


def choose_feed(
    app: str, feed: Feed, known: int | None, topic_id: str, checkpoints: Path, *, same: bool, above: int = 0
) -> Build:
    """Go on with a feed, or start its next generation where it is not the `same` any more."""
    places = _Places(app, feed, topic_id, checkpoints)
    if known is not None and same and places.checkpoint(known).exists():
        return places.build(known, {})
    return places.build(max(places.next_generation(), (known or 0) + 1, above + 1), {})


def feed_starts(processed: Mapping[str, Mapping[str, int]], partitions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Where the next generation of a feed begins: with what the one before has not processed.

    Nothing for a topic of which nothing is known. Spark wants every partition named: one that was added since then is
    read from its earliest record.
    """
    return {
        topic: {str(number): processed[topic].get(str(number), _EARLIEST) for number in range(count)}
        for topic, count in partitions.items()
        if processed.get(topic)
    }


def remove_older(build: Build) -> None:
    """Remove the checkpoints of the generations before a build."""
    tag, _, _ = build.checkpoint.name.rpartition("-")
    for path in build.checkpoint.parent.glob(f"{tag}-*"):
        number = path.name.removeprefix(f"{tag}-")
        if number.isdigit() and int(number) < build.generation:
            shutil.rmtree(path, ignore_errors=True)


class _Places:
    """Where the checkpoints of a view are."""

    def __init__(self, app: str, output: View | Feed, topic_id: str, checkpoints: Path) -> None:
        self._output = output
        self._directory = checkpoints / output.name
        self._tag = lineage(app, output.name, topic_id)

    def checkpoint(self, generation: int) -> Path:
        return self._directory / f"{self._tag}-{generation}"

    def build(self, generation: int, starts: Mapping[str, Mapping[str, int]]) -> Build:
        return Build(self._output, generation, self.checkpoint(generation), starts)

    def next_generation(self) -> int:
        """One more than the newest checkpoint, so that a lost catalog does not bring an old build back."""
        found = (path.name.removeprefix(f"{self._tag}-") for path in self._directory.glob(f"{self._tag}-*"))
        return 1 + max((int(text) for text in found if text.isdigit()), default=0)


def _served(
    places: _Places, generation: int, wanted: CatalogView, starts: Mapping[str, Mapping[str, int]] | None = None
) -> Chosen:
    starts = starts or {}
    return Chosen(places.build(generation, starts), replace(wanted, generation=generation, starts=starts))


def _next(
    places: _Places,
    generation: int,
    wanted: CatalogView,
    known: CatalogView,
    starts: Mapping[str, Mapping[str, int]],
) -> Chosen:
    entry = replace(wanted, generation=generation, starts=starts)
    return Chosen(places.build(generation, starts), replace(known, next=entry))


def _tell(name: str, generation: int, reason: str) -> None:
    log.warning("view %s: building generation %d, because %s", name, generation, reason)


def _changed(app: str, output: View | Feed, newest: CatalogView, wanted: CatalogView) -> DefinitionChanged:
    changes = differences(newest.definition, wanted.definition)
    return DefinitionChanged(
        f"{output.place}: view {output.name!r} is not the one that generation {newest.generation} was built from:\n"
        + "\n".join(f"    {line}" for line in changes)
        + f"\n    `tailrace rebuild {app} {output.name} --execute` has it built anew at the next start, and readers "
        "keep the old rows until then; or restore the definition, or give the view a new name."
    )
