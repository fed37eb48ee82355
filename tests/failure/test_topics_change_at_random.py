"""Random histories in which topics are compacted, cut short and given more partitions, and the pipeline is killed.

At quiet, Redis equals the recount of what producers wrote; and whatever is published of a key, its rank only rises.
The seed gives the history and what happens in it, though not at the same moments of a busy machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import redis

import folds
import histories
import kinds
from histories import EVENTS, MINUTE
from ledger import Ledger, Lost, committed
from operating import Operator
from running import Tailrace, eventually
from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogView
from tailrace.declarations.views import View
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import catalog_key, default_prefix, partition_keys
from tailrace.store.layout.row import unpack

START = int(time.time() * 1000) // MINUTE * MINUTE - 24 * 60 * MINUTE
FLAGS = ("--state-partitions", "1", "--partitions", str(histories.PARTITIONS))
PATIENCE = 600.0
TABLES = ("a", "b")
# What is chosen from, once for each kill that is asked for.
HAPPENING = ("flow", "compact", "kill", "grow", "restart")


class Witness:
    """Hears everything that is published of rows; `wrong` has what went back."""

    def __init__(self, url: str, prefix: str) -> None:
        self.wrong: list[str] = []
        self.heard = 0
        self._highest: dict[bytes, tuple[int, int]] = {}
        self._redis = redis.Redis.from_url(url)
        self._channels = self._redis.pubsub()  # type: ignore[no-untyped-call]
        self._channels.psubscribe(f"{prefix}:*changes:*")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._channels.close()
        self._redis.close()

    def _run(self) -> None:
        try:
            for message in self._channels.listen():
                if message["type"] == "pmessage":
                    self._hear(message["channel"], unpack(message["data"]))
        except (redis.RedisError, ValueError, OSError, AttributeError):
            return

    def _hear(self, channel: bytes, row: Any) -> None:
        self.heard += 1
        rank = (row.generation, row.version)
        before = self._highest.get(channel, (0, -1))
        if rank <= before and not (rank == before and row.value is not None):
            self.wrong.append(f"{channel!r}: {rank} after {before}")
        self._highest[channel] = max(rank, before)


@dataclass
class World:
    """An app, its topics, and what has happened to them."""

    app: Tailrace
    kinds: kinds.Kinds
    ledger: Ledger
    operator: Operator
    chance: random.Random
    fresh: str
    witness: Witness
    lost: dict[str, Lost] = field(default_factory=dict)
    served: dict[str, folds.Rows] = field(default_factory=dict)
    sent: int = 0

    def name(self, topic: str) -> str:
        return topic + self.fresh

    def flow(self) -> None:
        sends = histories.traffic(self.chance, self.sent, 40)
        self.sent += 40
        # Of a table, a record that can't be read hides from a rebuild what it stands upon: see docs/decisions/0034.
        self.ledger.send(histories.records(sends, "", START, self.fresh))

    def compact(self) -> None:
        self.operator.compact(self.name(self.chance.choice(TABLES)))

    def grow(self) -> None:
        """More partitions for some topic, also so many that keys move between those that were there."""
        topic = self.chance.choice([*TABLES, EVENTS])
        total = self.ledger.counts[topic] + self.chance.randrange(1, 4)
        self.operator.add_partitions(self.name(topic), total)
        self.ledger.counts[topic] = total
        self.flow()

    def kill(self) -> None:
        self._end()
        if self.chance.random() < 0.5:
            self.compact()
        self.flow()
        self.start()

    def restart(self) -> None:
        self.app.parts.pop("pipeline").stop()
        self.flow()
        self.start()

    def remove(self) -> None:
        """Retention overtakes the open batches, once in a history: each view has lost what it had not counted."""
        if self.lost:
            return
        self.settle()
        self.flow()
        self._end()
        self.served = self._served()
        ends: dict[int, int] = {}
        for record in self.ledger.records:
            if record.topic == EVENTS:
                ends[record.partition] = max(ends.get(record.partition, 0), record.offset + 1)
        catalog = self.catalog()
        for output in self.kinds.outputs.values():
            entry = catalog[output.name]
            (checkpoint,) = self.checkpoints(output.name, entry)
            counted = committed(checkpoint).get(self.name(EVENTS), {})
            self.lost[output.name] = {
                EVENTS: {p: (counted.get(p, 0), max(end, counted.get(p, 0))) for p, end in ends.items()}
            }
        self.operator.remove_records(self.name(EVENTS))
        self.start()

    def _served(self) -> dict[str, folds.Rows]:
        """The rows that a pipeline has left when it was killed, also in the middle of a batch: they do not change."""
        found: dict[str, folds.Rows] = {}
        while (now := self.stored()) != found:
            found = now
            time.sleep(2)
            lags = [lag for name, lag in self.app.metrics("materializer").items() if "materializer_lag" in name]
            if any(lags):
                found = {}
        return found

    def checkpoints(self, view: str, entry: CatalogView) -> list[Path]:
        return list((self.app.directory / "checkpoints" / view).glob(f"*-{entry.generation}"))

    def start(self) -> None:
        self.app.start_pipeline(*FLAGS)

    def _end(self) -> None:
        part = self.app.parts.pop("pipeline")
        time.sleep(self.chance.uniform(0, 4))
        children = Path(f"/proc/{part.pid}/task/{part.pid}/children").read_text().split()
        # Just started, it has no JVM yet.
        driver = [part.pid] if self.chance.random() < 0.5 or not children else []
        for victim in [*driver, *map(int, children)]:
            os.kill(victim, signal.SIGKILL)
        eventually(lambda: not part.running, "the pipeline ends with its JVM")
        part.kill()

    def catalog(self) -> dict[str, CatalogView]:
        with redis.Redis.from_url(self.app.redis.url) as client:
            found = cast(bytes, client.hget(catalog_key(self.prefix), APP_RECORD))
        return dict(Catalog.decode(found).views)

    @property
    def prefix(self) -> str:
        return default_prefix(self.kinds.app.name)

    def stored(self) -> dict[str, folds.Rows]:
        """The rows that Redis serves, by view."""
        found: dict[str, folds.Rows] = {}
        with redis.Redis.from_url(self.app.redis.url) as client:
            for name, entry in self.catalog().items():
                rows = found.setdefault(name, {})
                for number in range(entry.partitions):
                    key = partition_keys(self.prefix, name, number).rows
                    held = cast(dict[bytes, bytes], client.hgetall(cast(str, key)))
                    for text, data in held.items():
                        named: Any = text.decode()
                        if len(entry.key) > 1:
                            named = tuple(json.loads(named))
                        rows[named] = json.loads(unpack(data).value or b"null")
        return found

    def violations(self) -> list[str]:
        stored = self.stored()
        found = []
        for (kind, mode), output in self.kinds.outputs.items():
            lost = self.lost.get(output.name, {})
            parent = stored.get(f"averages-{mode}{self.fresh}")
            expected = self.ledger.rows(kind, lost, parent)
            touched = self.ledger.touched(kind, lost) if lost and kind not in ("good", "enriched") else set(expected)
            held, served = stored[output.name], self.served.get(output.name, {})
            for key in {*expected, *served, *held}:
                right = [expected.get(key)]
                if lost and (kind == "last" or key not in touched):
                    # A row that was served, and that nothing has come for since, stands.
                    right.append(served.get(key))
                if held.get(key) not in right:
                    found.append(f"{output.name}: {key!r} holds {held.get(key)}, expected {right}")
        return found

    def settle(self) -> None:
        """Wait until Redis holds what it must."""
        deadline = time.monotonic() + PATIENCE
        while found := self.violations():
            self.app.parts["pipeline"].check()
            assert time.monotonic() < deadline, "not settled:\n" + "\n".join(found[:20])
            time.sleep(0.5)
        assert not self.witness.wrong, self.witness.wrong[:10]


@pytest.fixture
def world(tmp_path: Path, broker: Broker, redis_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[World]:
    fresh = f"-{os.urandom(4).hex()}"
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, kinds.module("faults", fresh, kinds.MODES))
    found = kinds.faults(fresh, kinds.MODES)
    app.app = found.app.name
    operator = Operator(broker)
    for topic in TABLES:
        operator.create(topic + fresh, histories.PARTITIONS, cleanup_policy="compact")
    operator.create(EVENTS + fresh, histories.PARTITIONS)
    counts = dict.fromkeys([*TABLES, EVENTS], histories.PARTITIONS)
    seed: int = request.config.getoption("--seed")
    print(f"seed {seed}")
    witness = Witness(redis_server.url, default_prefix(found.app.name))
    made = World(app, found, Ledger(broker, fresh, counts), operator, random.Random(seed), fresh, witness)
    try:
        made.start()
        app.start_materializer()
        app.wait_ready("pipeline", PATIENCE)
        yield made
    finally:
        witness.stop()
        app.stop()


@pytest.mark.campaign("the ordinary run has each of these alone")
def test_topics_are_compacted_cut_short_and_given_partitions_while_the_pipeline_is_killed(
    world: World, request: pytest.FixtureRequest
) -> None:
    assert all(isinstance(output, View) for output in world.kinds.outputs.values())
    kills: int = request.config.getoption("--kills")
    happening = [world.chance.choice(HAPPENING) for _ in range(kills)]
    happening.insert(world.chance.randrange(len(happening)), "remove")
    world.flow()
    for number, name in enumerate(happening):
        print(f"{number}: {name}, partitions {world.ledger.counts}")
        getattr(world, name)()
        if name == "grow" or world.chance.random() < 0.3:
            world.settle()
    world.settle()
    assert world.witness.heard > 0
