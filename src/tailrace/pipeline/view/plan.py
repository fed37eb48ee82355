"""The plan of a view or feed: from its decoded sources to its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tailrace.declarations.views import JOIN, LATEST, Feed, View
from tailrace.pipeline.source.reading import Reading
from tailrace.pipeline.spark.overflow import checked
from tailrace.pipeline.view import events as E
from tailrace.pipeline.view import rows as R


@dataclass(frozen=True)
class Decoded:
    """One source of a plan: its name in a join, how it is read, and its records after the steps."""

    alias: str
    reading: Reading
    frame: DataFrame


def rows_of(
    output: View | Feed, sources: Sequence[Decoded], *, observed_as: str | None = None, batches: bool = False
) -> DataFrame:
    """The rows of a view, or the events of a feed. What is read and skipped is counted under the name given.

    batches: for micro-batches, in which outdated rows can be dropped early.
    """
    return checked(_rows_of(output, sources, observed_as, batches=batches))


def _rows_of(output: View | Feed, sources: Sequence[Decoded], observed_as: str | None, *, batches: bool) -> DataFrame:
    if isinstance(output, View) and output.kind == JOIN:
        tables = [
            R.JoinedTable(
                source.alias,
                E.all_values(_marked(source, _counted(observed_as, number)), source.reading.key),
                source.reading.key,
                source.reading.spread,
            )
            for number, source in enumerate(sources)
        ]
        return R.join(tables, output, batches=batches)
    (source,) = sources
    spread = source.reading.spread
    if source.reading.is_table and isinstance(output, View):
        marked = _marked(source, observed_as)
        if spread:
            return R.latest_spread(
                _transformed(E.all_values(marked, source.reading.key), output), output, spread, batches=batches
            )
        return R.latest_value(_transformed(E.values(marked), output), output)
    events = _events(source, output, observed_as)
    if isinstance(output, Feed):
        return R.feed(events, output)
    if output.kind == LATEST:
        if R.keyed_by_record(output, source.reading):
            return (
                R.latest_spread(events, output, spread, batches=batches) if spread else R.latest_keyed(events, output)
            )
        return R.latest_event(events, output, batches=batches)
    return R.window(events, output, output.window) if output.window is not None else R.aggregate(events, output)


def _counted(name: str | None, number: int) -> str | None:
    return name if name is None or number == 0 else f"{name}/{number}"


def _marked(source: Decoded, observed_as: str | None) -> DataFrame:
    marked = E.unusable(source.frame, source.reading.key, None, table=True)
    return E.observe(marked, observed_as) if observed_as is not None else marked


def _events(source: Decoded, output: View | Feed, observed_as: str | None) -> DataFrame:
    window = output.window if isinstance(output, View) else None
    if output.transform is None:
        marked = E.unusable(source.frame, output.key, window)
        return E.events(E.observe(marked, observed_as) if observed_as is not None else marked, source.reading)
    # Key and time may be made by the transform: what lacks them is known, and counted, only after it.
    marked = E.observe(source.frame, observed_as) if observed_as is not None else source.frame
    made = E.remarked(_transformed(E.events(marked, source.reading), output), output.key, window)
    if observed_as is not None:
        made = E.observe(made, f"{observed_as}/transformed")
    return E.events(made, source.reading)


def _transformed(frame: DataFrame, output: View | Feed) -> DataFrame:
    return frame if output.transform is None else output.transform(frame)


def ordered(feed: Feed, readings: Sequence[tuple[str, Reading]]) -> bool:
    """Whether each record gives one event at most, and the events of a source partition are written in its order.

    A dedupe shuffles events by their identity, to tasks that do not wait for each other; a transform may make
    several events of one, or shuffle them.
    """
    return feed.transform is None and state_stages(feed, readings) == 0


def ordered_topics(output: View | Feed, readings: Sequence[tuple[str, Reading]]) -> frozenset[str]:
    """The topics of which a row is made by the order of records within a partition: keys must not move there."""
    if not isinstance(output, View) or output.kind not in (JOIN, LATEST):
        return frozenset()
    return frozenset(
        reading.topic.name
        for _, reading in readings
        if not reading.ranked and (reading.is_table or R.keyed_by_record(output, reading))
    )


def versions_are_offsets(view: View, readings: Sequence[tuple[str, Reading]]) -> bool:
    """Whether the version of a row is one more than the offset of the record that it was made of."""
    return view.kind == LATEST and _one_record(view, readings) and not _ranked(readings)


def versioning(output: View | Feed, readings: Sequence[tuple[str, Reading]]) -> int:
    """By which rule versions are made: a build that was begun by another one can't go on.

    1: by the offset of a record. 2: by the newest record of each table. 3: by how many were absorbed, with a state in
    which whole numbers may be null because they have overflowed.
    """
    if not isinstance(output, View):
        return 1
    if output.kind == JOIN or _ranked(readings):
        return 2
    return 3 if accumulates(output, readings) else 1


def accumulates(output: View | Feed, readings: Sequence[tuple[str, Reading]]) -> bool:
    """Whether a row is made of several records, and its version of what the state has of them."""
    if not isinstance(output, View):
        return False
    return output.kind != LATEST or not _one_record(output, readings)


def watermarked(output: View | Feed, readings: Sequence[tuple[str, Reading]]) -> bool:
    """Whether it depends on where a batch is cut which records are too late."""
    windowed = isinstance(output, View) and output.window is not None
    steps = (E.dedupe(reading) for _, reading in readings)
    return windowed or any(step is not None and step.within is not None for step in steps)


def _ranked(readings: Sequence[tuple[str, Reading]]) -> bool:
    return any(reading.ranked for _, reading in readings)


def state_stages(output: View | Feed, readings: Sequence[tuple[str, Reading]]) -> int:
    """How many times real-time mode needs a task slot per state partition."""
    remembering = sum(E.dedupe(reading) is not None for _, reading in readings)
    if isinstance(output, Feed):
        return remembering
    return remembering + accumulates(output, readings)


def _one_record(view: View, readings: Sequence[tuple[str, Reading]]) -> bool:
    """Whether each record of a view of latest values is a row by itself: records of one key come in order."""
    (reading,) = (reading for _, reading in readings)
    return (reading.is_table or R.keyed_by_record(view, reading)) and not reading.spread
