"""The pipeline process.

Order of a start: mistakes that need no Spark → what Kafka has → Spark → mistakes in SQL → task slots → create topics →
the queries. Nothing is created for an app that has mistakes.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from tailrace.avro.registry import Registry
from tailrace.contracts.requests import request_for
from tailrace.declarations.app import App
from tailrace.declarations.checks import find_mistakes
from tailrace.declarations.views import REAL_TIME
from tailrace.dev import jars
from tailrace.errors import DeclarationError, SettingError, TopicError
from tailrace.health import HealthServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import read_records
from tailrace.kafka.topics import TopicOnBroker, Topics
from tailrace.pipeline.analysis.analysis import Analysis
from tailrace.pipeline.analysis.definitions import same_but_texts
from tailrace.pipeline.analysis.resources import all_slots, own_topics, read_topics
from tailrace.pipeline.lifecycle.checkpoints import checkpoint_directory, open_to_others
from tailrace.pipeline.lifecycle.lock import CheckpointLock
from tailrace.pipeline.lifecycle.past import Past
from tailrace.pipeline.metrics import PipelineMetrics
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.source.reading import readings
from tailrace.pipeline.source.registry_schemas import RegistrySchemas
from tailrace.pipeline.spark import cluster, jvm_parts, memory
from tailrace.pipeline.spark.session import Jvm, start_session
from tailrace.pipeline.view.plan import state_stages
from tailrace.settings import Settings
from tailrace.stopping import stop_event

log = logging.getLogger(__name__)

# In the checkpoint directory; no view can have this name.
SCRATCH = ".scratch"
_WATCH_EVERY = 1.0
_SHORTEST_BATCH = 5
_LONGEST_STOP = 7.0
# On this machine a slot costs nothing before a task is in it: these are for partitions that are added to topics.
_SPARE_SLOTS = 16


def run(app: App, settings: Settings) -> int:
    """Compute the views and feeds of an app until SIGTERM or SIGINT."""
    stopping = stop_event()
    if mistakes := find_mistakes(app):
        raise DeclarationError(mistakes)
    if settings.seconds("batch-interval") < _SHORTEST_BATCH:
        raise SettingError(
            f"--batch-interval: expected at least {_SHORTEST_BATCH} s, because nothing flows for some tenths of a "
            f"second between two batches, got {settings.text('batch-interval')!r}"
        )
    protection = cluster.protection(settings, os.environ)
    ui_port = cluster.ui_port(settings)
    checkpoints = checkpoint_directory(settings)
    lock = CheckpointLock(checkpoints)
    if told := open_to_others(checkpoints):
        log.warning("%s", told)
    scratch = checkpoints / SCRATCH
    # What a pipeline that was killed has left there.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    brokers, registry = Brokers.of(settings), Registry.of(settings)
    topics = Topics(brokers)
    found = find_sources(app, topics, brokers, settings)
    partitions = {name: topic.partitions for name, topic in found.items()}
    state = settings.number("state-partitions")
    longest = topics.lengths([name for name in read_topics(app) if name in found])
    master = settings.text("spark-master")
    needed = all_slots(app, {}, partitions, settings.number("partitions"), state)
    session = start_session(
        app.name,
        slots=needed + (0 if master else max(_SPARE_SLOTS, needed)),
        state_partitions=state,
        jars=jars.ensure("spark", _directory(settings)),
        scratch=scratch,
        master=master,
        protection=protection,
        ui_port=ui_port,
        parts=jvm_parts.chosen(settings.text("jvm-parts")),
        memory=memory.granted(memory.needed(app, longest, partitions, state), memory.of_machine()),
    )
    parts = jvm_parts.active(session)
    log.info("jvm-parts=%s", jvm_parts.told(parts))
    shuffles = any(output.mode == REAL_TIME and state_stages(output, readings(output, {})) for output in app.outputs)
    tls = session.sparkContext.getConf().get(cluster.TLS) == "true"
    protected, guarded = bool(protection) or tls, jvm_parts.SHUFFLE in parts or tls
    for warning in cluster.warnings(master, protected=protected, guarded=guarded, shuffles=shuffles):
        log.warning("%s", warning)
    jvm = Jvm(session)
    lock.keep_for(jvm.pid)
    try:
        with jvm.watched():
            if not master and (told := memory.too_little(memory.least_heap(app, longest), jvm.heap, longest)):
                log.warning("%s", told)
            _run(app, session, jvm, topics, brokers, registry, settings, stopping, scratch)
    finally:
        jvm.stop()
        shutil.rmtree(scratch, ignore_errors=True)
        lock.release()
    return 0


def _run(
    app: App,
    session: SparkSession,
    jvm: Jvm,
    topics: Topics,
    brokers: Brokers,
    registry: Registry | None,
    settings: Settings,
    stopping: Event,
    scratch: Path,
) -> None:
    """Start the queries, watch them until it is time to stop, and stop them."""
    registry_schemas = RegistrySchemas(registry)
    _pin(app, registry_schemas, read_records(brokers, app.name, topics), settings)
    analysis = Analysis(session, registry_schemas)
    analysis.examine(app)
    if analysis.mistakes:
        raise DeclarationError(analysis.mistakes)
    on_broker = create_topics(app, topics, settings)
    pipeline = Pipeline(app, session, analysis, settings, on_broker, registry_schemas, scratch, brokers)
    health = _health(settings, pipeline)
    while not stopping.wait(_WATCH_EVERY if pipeline.started else 0.05):
        jvm.check()
        pipeline.watch()
    log.info("stopping")
    pipeline.rest()
    patience = time.monotonic() + _LONGEST_STOP
    while pipeline.near_boundary() and time.monotonic() < patience:
        time.sleep(0.05)
    pipeline.stop()
    if health is not None:
        health.close()


def _pin(app: App, registry_schemas: RegistrySchemas, records: Mapping[str, bytes], settings: Settings) -> None:
    """Have views and feeds that are what they were read their topics with the schemas that they were built with."""
    catalog, state = Past(app.name, dict(records)).catalog(), settings.number("state-partitions")
    for output in app.outputs:
        view = catalog.views.get(output.name)
        newest = (view.next or view) if view is not None else catalog.feeds.get(output.name)
        asked = request_for(output.name, records)
        if newest is None or (asked is not None and asked.after == newest.generation):
            continue
        entries = (newest, view) if view is not None else (newest,)
        same = [entry for entry in entries if entry is not None and same_but_texts(entry.definition, output, state)]
        if same:
            registry_schemas.pin(output.name, same[0].schemas)


def _directory(settings: Settings) -> Path | None:
    return Path(settings.text("jars")) if settings.text("jars") else None


def find_sources(app: App, topics: Topics, brokers: Brokers, settings: Settings) -> dict[str, TopicOnBroker]:
    """The topics of the app that exist; a missing source is an error unless it may be created."""
    names = app.source_topics
    found = topics.describe([*names, *(output.changelog for output in app.outputs)])
    missing = [name for name in names if name not in found]
    if missing and settings.text("create-topics") != "all":
        raise TopicError(
            f"expected the topics {', '.join(names)} on {brokers}, did not find {', '.join(missing)}: "
            "create them, correct their names, or start with --create-topics all"
        )
    return found


def create_topics(app: App, topics: Topics, settings: Settings) -> dict[str, TopicOnBroker]:
    """Create what is missing, and see that what is there has the right settings."""
    replication, partitions = settings.number("replication"), settings.number("partitions")
    sources = app.source_topics
    found = topics.describe(sources)
    for name in sources:
        if name not in found:
            topics.create(name, partitions=partitions, replication=replication, config={})
            log.info("created topic %s", name)
    own = own_topics(app, {name: topic.partitions for name, topic in found.items()})
    found = topics.describe([topic.name for topic in own])
    for topic in own:
        if topic.name not in found:
            count = topic.partitions or partitions
            topics.create(topic.name, partitions=count, replication=replication, config=topic.config)
            log.info("created topic %s", topic.name)
        elif "cleanup.policy" in topic.config:
            topics.require_policy(topic.name, topic.config["cleanup.policy"])
            topics.require_room(topic.name)
    return topics.describe([*sources, *(topic.name for topic in own)])


def _health(settings: Settings, pipeline: Pipeline) -> HealthServer | None:
    if not settings.text("health-port"):
        return None
    counters = PipelineMetrics(pipeline)
    host = settings.text("health-host")
    return HealthServer(settings.number("health-port"), counters.registry, pipeline.reasons, host=host)
