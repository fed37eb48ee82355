"""What an app needs of Kafka and Spark: topics, their settings, and task slots; decided without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.contracts.catalog import catalog_topic
from tailrace.contracts.commands import commands_topic
from tailrace.declarations.app import App
from tailrace.declarations.topics import Table, Topic
from tailrace.declarations.views import REAL_TIME, Feed, View
from tailrace.kafka.dead_letters import dead_letter_topic
from tailrace.kafka.topics import COMMANDS, COMPACTED, DEAD_LETTERS, EVENTS
from tailrace.pipeline.source.reading import Ground, RowTypes, readings
from tailrace.pipeline.view.plan import state_stages


@dataclass(frozen=True)
class NeededTopic:
    """A topic that the pipeline creates if it is missing; `partitions` is None for what the settings say."""

    name: str
    config: Mapping[str, str]
    partitions: int | None = None


def read_topics(app: App) -> list[str]:
    """The Kafka topics that the app reads, also those that it writes itself."""
    return sorted({source.name for output in app.outputs for _, source in output.sources})


def used(app: App) -> list[Topic | Table]:
    """The declared topics and tables that something is computed from."""
    return [source for source in app.topics if source.name in app.source_topics]


def own_topics(app: App, partitions: Mapping[str, int]) -> list[NeededTopic]:
    """The topics that the pipeline writes; `partitions` are those of the source topics that exist."""
    found = [NeededTopic(catalog_topic(app.name), COMPACTED, 1), NeededTopic(commands_topic(app.name), COMMANDS, 1)]
    found += [NeededTopic(view.changelog, COMPACTED) for view in app.views]
    found += [NeededTopic(feed.changelog, EVENTS) for feed in app.feeds]
    found += [NeededTopic(dead_letter_topic(name), DEAD_LETTERS, partitions.get(name)) for name in app.source_topics]
    return found


def slots(
    output: View | Feed,
    types: RowTypes,
    partitions: Mapping[str, int],
    new: int,
    state: int,
    ground: Ground | None = None,
) -> int:
    """How many task slots an output needs, all at once: real-time mode keeps a task per partition running."""
    if output.mode != REAL_TIME:
        return 0
    found = readings(output, types, None, ground)
    sources = sum(partitions.get(reading.topic.name, new) for _, reading in found)
    return sources + state * state_stages(output, found)


def all_slots(
    app: App,
    types: RowTypes,
    partitions: Mapping[str, int],
    new: int,
    state: int,
    grounds: Mapping[str, Ground] | None = None,
) -> int:
    """How many task slots an app needs: those of every output, of a rehearsal or build beside them, of micro-batches.

    A micro-batch takes whatever slot is free, also one that a real-time query has left between two batches; the query
    fails if it does not get it back at once. So there are as many as all micro-batches can take beside it.
    """
    grounds = grounds or {}
    live = [slots(output, types, partitions, new, state, grounds.get(output.name)) for output in app.outputs]
    batches = [
        max(state, sum(partitions.get(source.name, new) for _, source in output.sources))
        for output in app.outputs
        if output.mode != REAL_TIME
    ]
    letters = [partitions.get(name, new) for name in app.source_topics]
    return sum(live) + max(live, default=0) + sum(batches) + sum(letters)
