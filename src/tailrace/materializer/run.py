"""The materializer process."""

from __future__ import annotations

import gc
import logging
import sys

from tailrace.contracts.catalog import catalog_topic
from tailrace.health import HealthServer
from tailrace.kafka.additions import Additions
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogReader
from tailrace.kafka.changelogs import Changelogs
from tailrace.kafka.commands_topic import CommandsReader
from tailrace.kafka.dead_letters import DeadLetters
from tailrace.logs import without_password
from tailrace.materializer.catalog_copy import CatalogCopy
from tailrace.materializer.counters import MaterializerCounters
from tailrace.materializer.dead_letters import DeadLetterKeeper
from tailrace.materializer.materializer import Materializer
from tailrace.materializer.queries.matcher import Matcher
from tailrace.materializer.views.upkeep import Upkeep
from tailrace.settings import Settings
from tailrace.stopping import stop_event
from tailrace.store.layout.keys import default_prefix
from tailrace.store.write.match_writer import MatchWriter
from tailrace.store.write.writer import StoreWriter

log = logging.getLogger(__name__)

_NEW_OBJECTS = 500_000
# How long, in seconds, one thread computes while another waits. The thread that sends to Redis must not wait until the
# next batch is ready.
_TURN = 0.0005


def run(app: str, settings: Settings) -> int:
    """Keep Redis in step with the changelogs of an app until SIGTERM or SIGINT."""
    stopping = stop_event()
    counters = MaterializerCounters()
    writer = StoreWriter(settings.redis(), settings.text("prefix") or default_prefix(app))
    brokers = Brokers.of(settings)
    reader = CatalogReader(brokers, catalog_topic(app))
    changelogs = Changelogs(brokers, f"tailrace.{app}.materializer")
    catalog = CatalogCopy(reader, writer, counters)
    upkeep = Upkeep(
        writer,
        Additions(brokers),
        counters,
        finished=catalog.finished,
        tombstones=settings.seconds("tombstones"),
    )
    dead_letters = DeadLetterKeeper(DeadLetters(brokers), changelogs, counters)
    commands = CommandsReader(brokers, app)
    matcher = Matcher(commands, MatchWriter(writer), counters)
    materializer = Materializer(changelogs, catalog, writer, upkeep, dead_letters, matcher, counters)
    health = (
        HealthServer(
            settings.number("health-port"),
            counters.registry,
            materializer.reasons,
            degraded=materializer.degraded,
            host=settings.text("health-host"),
        )
        if settings.text("health-port")
        else None
    )
    log.info("materializer of app %s: %s → %s", app, brokers, without_password(settings.text("redis")))
    collect_seldom()
    sys.setswitchinterval(_TURN)
    try:
        while not stopping.is_set():
            materializer.step()
    finally:
        materializer.stop()
        changelogs.close()
        reader.close()
        commands.close()
        writer.close()
        if health is not None:
            health.close()
    return 0


def collect_seldom() -> None:
    """Let Python look for cycles among objects only after more new objects than a poll makes.

    Every record makes some objects that live as long as its poll, and none of them are in cycles. With Python's
    default, looking through them took half of the process's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
