"""The plan of a view or feed: from its decoded sources to its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tailrace.pipeline import events as E
from tailrace.pipeline import rows as R
from tailrace.pipeline.reading import Reading
from tailrace.views import JOIN, LATEST, Feed, View


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
    if isinstance(output, View) and output.kind == JOIN:
        tables = [
            (source.alias, _values(source, _counted(observed_as, number)), source.reading.key)
            for number, source in enumerate(sources)
        ]
        return R.join(tables, output, batches=batches)
    (source,) = sources
    if source.reading.is_table and isinstance(output, View):
        return R.latest_value(_transformed(_values(source, observed_as), output), output)
    events = _events(source, output, observed_as)
    if isinstance(output, Feed):
        return R.feed(events, output)
    if output.kind == LATEST:
        if R.keyed_by_record(output, source.reading):
            return R.latest_keyed(events, output)
        return R.latest_event(events, output, batches=batches)
    return R.window(events, output, output.window) if output.window is not None else R.aggregate(events, output)


def _counted(name: str | None, number: int) -> str | None:
    return name if name is None or number == 0 else f"{name}/{number}"


def _values(source: Decoded, observed_as: str | None) -> DataFrame:
    marked = E.unusable(source.frame, source.reading.key, None, table=True)
    return E.values(E.observe(marked, observed_as) if observed_as is not None else marked)


def _events(source: Decoded, output: View | Feed, observed_as: str | None) -> DataFrame:
    at = output.window.at if isinstance(output, View) and output.window is not None else None
    if output.transform is None:
        marked = E.unusable(source.frame, output.key, at)
        return E.events(E.observe(marked, observed_as) if observed_as is not None else marked, source.reading)
    # Key and time may be made by the transform: what lacks them is known, and counted, only after it.
    marked = E.observe(source.frame, observed_as) if observed_as is not None else source.frame
    made = E.remarked(_transformed(E.events(marked, source.reading), output), output.key, at)
    if observed_as is not None:
        made = E.observe(made, f"{observed_as}/transformed")
    return E.events(made, source.reading)


def _transformed(frame: DataFrame, output: View | Feed) -> DataFrame:
    return frame if output.transform is None else output.transform(frame)


def ordered(feed: Feed, readings: Sequence[tuple[str, Reading]]) -> bool:
    """Whether each record gives one event at most, and the events of a source partition are written in its order.

    A dedupe sends events on by what they are told by, to tasks that do not wait for each other; a transform may make
    several events of one, or shuffle them.
    """
    return feed.transform is None and state_stages(feed, readings) == 0


def versions_are_offsets(view: View, readings: Sequence[tuple[str, Reading]]) -> bool:
    """Whether the version of a row is one more than the offset of the record that it was made of."""
    if view.kind != LATEST:
        return False
    (reading,) = (reading for _, reading in readings)
    return (reading.is_table and not reading.ranked) or R.keyed_by_record(view, reading)


def state_stages(output: View | Feed, readings: Sequence[tuple[str, Reading]]) -> int:
    """How many times real-time mode needs a task slot per state partition."""
    remembering = sum(E.dedupe(reading) is not None for _, reading in readings)
    if isinstance(output, Feed):
        return remembering
    if output.kind == LATEST:
        (reading,) = (reading for _, reading in readings)
        stateless = reading.is_table or R.keyed_by_record(output, reading)
        return remembering + (0 if stateless else 1)
    return remembering + 1
