"""Builds: which generation of a view this pipeline runs, and where its checkpoint is.

A build goes on where its checkpoint left off only if it is still the same thing: same definition, same source
topics, same changelog. Versions count from zero in a new checkpoint, so every new checkpoint is a new generation:
its rows supersede all rows of the generations before it. While a new generation is being built, readers keep the
rows of the one before: the catalog has the new one as `next`, until it is handed over. If the definition is the same,
the one before goes on meanwhile.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailrace.contracts.catalog import CatalogFeed, CatalogView
from tailrace.contracts.position import lineage
from tailrace.contracts.requests import Request
from tailrace.declarations.views import Changelog, Feed, View
from tailrace.errors import DefinitionChanged
from tailrace.pipeline.analysis.definitions import differences
from tailrace.pipeline.source.reading import Ground

log = logging.getLogger(__name__)

# How Spark spells the earliest offset of a partition.
_EARLIEST = -2


@dataclass(frozen=True)
class Build:
    """One generation of a view or feed. `starts`: from which offsets it reads; the earliest if there are none.

    `ground` is what it stands on: which generations of other views it reads, and in which topics keys have moved.
    `partitions` are those of the changelog that rows are spread over; 0 if Kafka is to choose among all.
    `origin` tells a feed's source topic from one of the same name that was there before; empty for views.
    """

    output: View | Feed
    generation: int
    checkpoint: Path
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    origin: str = ""
    ground: Ground = field(default_factory=Ground)
    partitions: int = 0


@dataclass(frozen=True)
class Chosen:
    """What to run, and what the catalog is to say of it.

    `build` is the newest build. If it is to take the place of another one, `served` is that one, if it can go on
    meanwhile. `stale` says why some of the rows that readers have may be stale; empty if they are not.
    """

    build: Build
    entry: CatalogView
    served: Build | None = None
    stale: str = ""

    @property
    def handing_over(self) -> bool:
        """Whether the build is to take the place of another when it is done."""
        return self.entry.next is not None


def parents_of(output: View | Feed) -> list[str]:
    """The views that a view reads."""
    return sorted({source.view.name for _, source in output.sources if isinstance(source, Changelog)})


def choose_build(
    app: str,
    output: View | Feed,
    known: CatalogView | None,
    wanted: CatalogView,
    checkpoints: Path,
    request: Request | None = None,
    *,
    above: int = 0,
    keep_moved: bool = False,
) -> Chosen:
    """Go on with a known build of a view, or start the next generation.

    `known` is the catalog's entry from the last start, `wanted` the entry of this start; the generation of the
    result is chosen here; it is above `above`, the highest that the changelog is known to hold. `request` is what an
    operator has asked for. `keep_moved`: go on with a build although partitions were added to a topic in which their
    order decides. Raises DefinitionChanged if the definition is not the one of the known build, and nobody has
    asked for another.
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
    # Readers find a row by these.
    wanted = replace(wanted, partitions=known.partitions, spread=_spread(newest, wanted))
    wanted = replace(wanted, by_offset=wanted.by_offset and not wanted.spread)
    if request is not None and request.after == newest.generation:
        _tell(output.name, following, request.why)
        return _next(places, following, replace(wanted, starts=request.starts), known)
    candidates = [entry for entry in (newest, known) if entry.definition == wanted.definition]
    if not candidates:
        raise _changed(app, output, newest, wanted)
    for entry in candidates:
        moved = _moved(entry, wanted)
        if not _unfit(places, entry, wanted) and (keep_moved or not moved):
            going_on = _going_on(entry, wanted)
            if entry is known:
                return replace(_served(places, known.generation, going_on), stale=_stale(known, wanted))
            return _next(places, entry.generation, going_on, known)
    reason = _unfit(places, candidates[0], wanted) or _moved(candidates[0], wanted)
    _tell(output.name, following, reason)
    return _next(places, following, replace(wanted, starts=_starts(candidates[0], wanted)), known)


def _unfit(places: _Places, entry: CatalogView, wanted: CatalogView) -> str:
    """Why a build of the same definition can't go on; empty if it can."""
    if entry.sources != wanted.sources:
        return "a source topic was made anew"
    if not places.checkpoint(entry.generation).exists():
        return f"its checkpoint {places.checkpoint(entry.generation)} is gone"
    if entry.versioning != wanted.versioning:
        return "this release makes its versions or its state by another rule"
    if entry.parents != wanted.parents:
        changed = sorted(name for name, built in wanted.parents.items() if entry.parents.get(name) != built)
        return f"it reads {' and '.join(changed)}, and there is a new generation of that"
    return ""


def _moved(entry: CatalogView, wanted: CatalogView) -> str:
    """Why keys may have moved since a build was begun; empty if they have not."""
    found = [
        f"{topic} has {count} partitions in place of {entry.counts[topic]}"
        for topic, count in sorted(wanted.counts.items())
        if entry.counts.get(topic, count) != count
    ]
    return f"partitions were added, and keys may have moved: {', '.join(found)}" if found else ""


def _stale(entry: CatalogView, wanted: CatalogView) -> str:
    moved = _moved(entry, wanted)
    return f"{moved}; a key that has moved keeps its old row" if moved else ""


def _spread(newest: CatalogView, wanted: CatalogView) -> dict[str, int]:
    """The topics in which a key may have records in several partitions, each with how many there are."""
    return {
        topic: count
        for topic, count in wanted.counts.items()
        if newest.sources.get(topic) == wanted.sources.get(topic)
        and (topic in newest.spread or newest.counts.get(topic, count) != count)
    }


def _starts(entry: CatalogView, wanted: CatalogView) -> dict[str, dict[str, int]]:
    """Where a build begins that takes the place of one which a reset had begin later."""
    same = {topic: of for topic, of in entry.starts.items() if entry.sources.get(topic) == wanted.sources.get(topic)}
    return starts_within(same, wanted.counts)


def _going_on(entry: CatalogView, wanted: CatalogView) -> CatalogView:
    """The entry of a build that goes on: as it is wanted now, on the ground that it was begun on."""
    return replace(
        wanted,
        starts=entry.starts,
        since=entry.since,
        counts={**wanted.counts, **entry.counts},
        spread=entry.spread,
        by_offset=entry.by_offset,
    )


def choose_feed(
    app: str,
    feed: Feed,
    known: CatalogFeed | None,
    wanted: CatalogFeed,
    checkpoints: Path,
    request: Request | None = None,
    *,
    above: int = 0,
) -> tuple[Build, CatalogFeed]:
    """Go on with a feed, or start its next generation if it is not the same any more, or was asked for."""
    places = _Places(app, feed, wanted.topic_id, checkpoints)
    if known is None:
        generation = max(places.next_generation(), above + 1)
        return places.build(replace(wanted, generation=generation)), replace(wanted, generation=generation)
    if known.topic_id == wanted.topic_id:
        wanted = replace(wanted, partitions=known.partitions, reset=known.reset)
    following = max(places.next_generation(), known.generation + 1)
    if request is not None and request.after == known.generation:
        log.warning("feed %s: begins generation %d, because %s", feed.name, following, request.why)
        entry = replace(wanted, generation=following, reset=following)
        return replace(places.build(entry), starts=request.starts), entry
    told = [(one.definition, one.sources, one.topic_id) for one in (known, wanted)]
    same = told[0] == told[1] and places.checkpoint(known.generation).exists()
    entry = replace(wanted, generation=known.generation if same else following)
    return places.build(entry), entry


def starts_within(starts: Mapping[str, Mapping[str, int]], partitions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Where a build begins, in the partitions that there are.

    Nothing for a topic of which nothing is said. Spark wants every other partition named: one that was added since then
    is read from its earliest record.
    """
    return {
        topic: {str(number): starts[topic].get(str(number), _EARLIEST) for number in range(count)}
        for topic, count in partitions.items()
        if starts.get(topic)
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

    def build(self, entry: CatalogView | CatalogFeed) -> Build:
        checkpoint, partitions = self.checkpoint(entry.generation), entry.partitions
        if isinstance(entry, CatalogFeed):
            return Build(self._output, entry.generation, checkpoint, partitions=partitions)
        ground = Ground(entry.parents, entry.spread)
        return Build(self._output, entry.generation, checkpoint, entry.starts, "", ground, partitions)

    def next_generation(self) -> int:
        """One more than the newest checkpoint, so that a lost catalog does not bring an old build back."""
        found = (path.name.removeprefix(f"{self._tag}-") for path in self._directory.glob(f"{self._tag}-*"))
        return 1 + max((int(text) for text in found if text.isdigit()), default=0)


def _served(places: _Places, generation: int, wanted: CatalogView) -> Chosen:
    entry = replace(wanted, generation=generation)
    return Chosen(places.build(entry), entry)


def _next(places: _Places, generation: int, wanted: CatalogView, known: CatalogView) -> Chosen:
    """A build that is to take the place of a known one, which goes on meanwhile if it still can."""
    entry = replace(wanted, generation=generation, since={})
    same = (known.definition, known.sources, known.versioning, known.reads) == (
        wanted.definition,
        wanted.sources,
        wanted.versioning,
        wanted.reads,
    )
    served = places.build(known) if same and places.checkpoint(known.generation).exists() else None
    stale = _stale(known, wanted) if same else ""
    return Chosen(places.build(entry), replace(known, next=entry), served, stale)


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
