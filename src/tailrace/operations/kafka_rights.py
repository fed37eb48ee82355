"""The least rights on topics and consumer groups that each process of an app needs. No I/O.

Topics are named one by one. Consumer groups are named by the prefix `tailrace.<app>.`, because there are several of
each view, and those of Spark's readers end in a random id. No process needs a right on the cluster: Kafka lets whoever
may write to a topic write idempotently, and Create on a topic is enough to create it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.contracts.catalog import catalog_topic
from tailrace.contracts.commands import commands_topic
from tailrace.declarations.app import App
from tailrace.declarations.topics import Table, Topic
from tailrace.kafka.acls import (
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    KafkaRight,
)
from tailrace.kafka.dead_letters import dead_letter_topic

PIPELINE = "pipeline"
MATERIALIZER = "materializer"
GATEWAY = "gateway"
# Whoever runs `tailrace status`, `rebuild`, `reset`, `check --kafka` and `revoke`.
OPERATOR = "operator"
PROCESSES = (PIPELINE, MATERIALIZER, GATEWAY, OPERATOR)

_SETTINGS = "sees whether its settings are as they must be"


def kafka_rights(app: App, process: str, *, create_sources: bool = False) -> tuple[KafkaRight, ...]:
    """The rights of a process, in the order of its topics; `create_sources` is for `--create-topics all`."""
    found = {
        PIPELINE: lambda: _pipeline(app, create_sources=create_sources),
        MATERIALIZER: lambda: _materializer(app),
        GATEWAY: lambda: _gateway(app),
        OPERATOR: lambda: _operator(app),
    }
    return tuple(found[process]())


def _pipeline(app: App, *, create_sources: bool) -> Iterator[KafkaRight]:
    for name in app.source_topics:
        yield from _topic(name, {READ: "reads records"})
        if create_sources:
            yield from _topic(name, {CREATE: "creates it if it is missing (--create-topics all)"})
        yield from _topic(name, {DESCRIBE_CONFIGS: "sees how long its records may be, and how long tombstones stay"})
    own = {CREATE: "creates it if it is missing", DESCRIBE_CONFIGS: _SETTINGS}
    progress = {READ: "reads requests, and what ran before", WRITE: "writes the catalog and progress"}
    yield from _topic(catalog_topic(app.name), progress | own)
    yield from _topic(commands_topic(app.name), {DESCRIBE: "sees whether it is there"} | own)
    for output in app.outputs:
        changes = {READ: "finds generations, and reads views for other views", WRITE: "writes changes"}
        yield from _topic(output.changelog, changes | own)
    for name in app.source_topics:
        yield from _topic(dead_letter_topic(name), {WRITE: "writes records that no view can use"} | own)
    yield KafkaRight(GROUP, _groups(app), READ, "commits offsets for lag tools, and reads with Spark", PREFIXED)


def _materializer(app: App) -> Iterator[KafkaRight]:
    yield from _topic(catalog_topic(app.name), {READ: "follows the catalog"})
    yield from _topic(commands_topic(app.name), {READ: "follows which queries there are"})
    for view in app.views:
        added = {READ: "reads changes", WRITE: "adds tombstones"}
        yield from _topic(view.changelog, added | {DESCRIBE_CONFIGS: "sees how long tombstones stay"})
    for feed in app.feeds:
        yield from _topic(feed.changelog, {READ: "reads events"})
    letters = {
        WRITE: "writes records that Redis never takes",
        CREATE: "creates it with the first of them",
        DESCRIBE_CONFIGS: "sees how long its records may be",
    }
    for output in app.outputs:
        yield from _topic(dead_letter_topic(output.changelog), letters)
    yield KafkaRight(GROUP, f"{_groups(app)}materializer", READ, "shares partitions, commits offsets for lag tools")
    yield _reader(app)


def _gateway(app: App) -> Iterator[KafkaRight]:
    requests = {READ: "finds streams of other gateways", WRITE: "asks for queries"}
    yield from _topic(commands_topic(app.name), requests)
    for name in sorted({source.name for source in app.topics if _accepts(source)}):
        yield from _topic(name, {WRITE: "writes events of clients"})
    for view in app.views:
        yield from _topic(view.changelog, {DESCRIBE: "sees where it ends, for lookups that wait"})
    yield _reader(app)


def _operator(app: App) -> Iterator[KafkaRight]:
    requests = {READ: "sees what runs, and how far it is", WRITE: "asks for rebuilds and resets"}
    yield from _topic(catalog_topic(app.name), requests)
    waiting = {READ: "sees how old the records are that wait"}
    for name in app.source_topics:
        yield from _topic(name, waiting)
    for output in app.outputs:
        yield from _topic(output.changelog, waiting)
    for output in app.outputs:
        yield from _topic(dead_letter_topic(output.changelog), {DESCRIBE: "counts records that Redis never took"})
    yield _reader(app)


def _topic(name: str, why: dict[str, str]) -> Iterator[KafkaRight]:
    for operation, reason in why.items():
        yield KafkaRight(TOPIC, name, operation, reason)


def _reader(app: App) -> KafkaRight:
    return KafkaRight(GROUP, _groups(app), DESCRIBE, "Kafka's client asks for it, though it commits nothing", PREFIXED)


def _groups(app: App) -> str:
    return f"tailrace.{app.name}."


def _accepts(source: Topic | Table) -> bool:
    return (source.records if isinstance(source, Table) else source).accept
