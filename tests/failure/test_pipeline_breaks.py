"""Spark and Kafka die at random moments, and views switch modes; afterwards every kind of view equals its fold.

Only the changelogs are looked at. While something breaks they may repeat older versions at newer offsets, and a view
that reads several partitions may write a version again with another row. At quiet, every key ends with its highest
version, which is the fold's row.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import histories
import kinds
from histories import MINUTE
from proving import Proof
from repeating import repeating
from running import Tailrace, eventually
from services import NewBroker
from tailrace.declarations.views import REAL_TIME
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.pipeline.lifecycle.backlog import MANY

START = int(time.time() * 1000) // MINUTE * MINUTE - 24 * 60 * MINUTE
FLAGS = ("--state-partitions", "1", "--partitions", str(histories.PARTITIONS))
PATIENCE = 600.0
# Longer than the pipeline waits for an answer of the broker, from its next question on.
PAUSE = 25.0
# How many kills there may be beyond those that were asked for, until one has a batch replayed.
MORE = 5


@dataclass
class Breaking:
    """A pipeline that is broken again and again while records flow, at moments that a seed gives."""

    proof: Proof
    chance: random.Random
    sent: int = 0
    wrong: list[BaseException] = field(default_factory=list)

    @property
    def tailrace(self) -> Tailrace:
        return self.proof.tailrace

    def send(self, count: int) -> None:
        sends = histories.traffic(self.chance, self.sent, count)
        self.sent += count
        self.proof.send(histories.records(sends, "", START, self.proof.fresh))

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Records without a pause, until the block ends; what goes wrong there fails the test."""
        with repeating(lambda: self.send(10), 0.1) as self.wrong:
            yield

    def start(self) -> None:
        self.tailrace.start_pipeline(*FLAGS)

    def progressed(self) -> None:
        """Wait until every view has written something since now, then for a random moment of a batch."""

        def written() -> dict[str, int]:
            self.proof.read()
            return {o.changelog: len(self.proof.changes.get(o.changelog, ())) for o in self.proof.kinds.app.outputs}

        def gone_on() -> bool:
            assert not self.wrong, self.wrong
            self.tailrace.parts["pipeline"].check()
            return all(n > before[name] for name, n in written().items())

        before = written()
        eventually(gone_on, "every view goes on", PATIENCE)
        time.sleep(self.chance.uniform(0, 6))

    def replayed(self) -> bool:
        """Whether a view has written something again so far."""
        self.proof.read()
        return any(self.proof.repeats().values())

    def kill(self) -> None:
        """SIGKILL the driver, its JVM or both, and start the pipeline again."""
        part = self.tailrace.parts.pop("pipeline")
        victim = self.chance.choice(["driver", "JVM", "both"])
        if victim == "driver":
            # Its JVM lives on for a moment: the next pipeline must wait for its end.
            os.kill(part.pid, signal.SIGKILL)
        elif victim == "JVM":
            for child in Path(f"/proc/{part.pid}/task/{part.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            eventually(lambda: not part.running, "the pipeline ends when its JVM has ended")
        else:
            part.kill()
        print(f"killed {victim} after {self.sent} messages")
        self.start()
        eventually(self._begun, "the next pipeline has the checkpoints", PATIENCE)
        part.kill()

    def _begun(self) -> bool:
        part = self.tailrace.parts["pipeline"]
        part.check()
        return "created topic" in part.tail(200) or "behind" in part.tail(200)


def breaking(directory: Path, broker: Broker, redis: RedisServer, request: pytest.FixtureRequest) -> Breaking:
    fresh = f"-{os.urandom(4).hex()}"
    every = request.config.getoption("--every-kind")
    modes, declared = (kinds.MODES, "faults") if every else ((REAL_TIME,), "few_faults")
    app = Tailrace(directory, broker, redis, fresh, kinds.module(declared, fresh, modes))
    seed: int = request.config.getoption("--seed")
    return Breaking(Proof(app, getattr(kinds, declared)(fresh, modes), fresh), random.Random(seed))


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, broker: Broker, redis_server: RedisServer
) -> Iterator[Breaking]:
    """A running pipeline with a view without state, a window and a join; in the campaign, of each kind and mode."""
    found = breaking(tmp_path_factory.mktemp("faults"), broker, redis_server, request)
    try:
        found.start()
        found.tailrace.wait_ready("pipeline", PATIENCE)
        yield found
    finally:
        found.proof.close()
        found.tailrace.stop()


@pytest.mark.campaign("the ordinary run kills each of them once")
def test_driver_and_jvm_killed_at_random_moments(shared: Breaking, request: pytest.FixtureRequest) -> None:
    with shared.flowing():
        kills: int = request.config.getoption("--kills")
        for _ in range(kills):
            shared.progressed()
            shared.kill()
        shared.progressed()
        # A kill right after a boundary replays nothing, and so tests nothing.
        for _ in range(MORE):
            if shared.replayed():
                break
            shared.kill()
            shared.progressed()
    shared.proof.settle(PATIENCE, once=False)
    repeats = shared.proof.repeats()
    assert sum(repeats.values()) > 0, f"all of {kills + MORE} kills fell on a boundary: nothing was replayed"
    print(f"repeated: {repeats}")


@pytest.mark.campaign("the ordinary run switches modes without a kill")
def test_modes_switched_in_the_middle_and_killed_meanwhile(shared: Breaking) -> None:
    shared.tailrace.parts.pop("pipeline").kill()
    shared.send(MANY + 5_000)
    shared.start()
    log = shared.tailrace.directory / "pipeline.log"
    offset = log.stat().st_size

    def said(text: str) -> bool:
        return text in log.read_bytes()[offset:].decode(errors="replace")

    eventually(lambda: said("is catching-up"), "a view catches up", PATIENCE)
    time.sleep(shared.chance.uniform(0, 3))
    shared.kill()
    shared.proof.settle(PATIENCE, once=False)
    with shared.flowing():
        shared.progressed()
    shared.proof.settle(PATIENCE, once=False)
    assert said("is live"), "no view went back to real time"


def test_broker_stopped_killed_and_paused(
    request: pytest.FixtureRequest, tmp_path: Path, new_broker: NewBroker, redis_server: RedisServer
) -> None:
    broker = new_broker()
    found = breaking(tmp_path / "app", broker, redis_server, request)
    try:
        found.start()
        found.tailrace.wait_ready("pipeline", PATIENCE)
        with found.flowing():
            for end in (broker.stop, broker.kill):
                found.progressed()
                end()
                time.sleep(found.chance.uniform(0, 5))
                broker.start()
            found.progressed()
            os.kill(broker.part.pid, signal.SIGSTOP)
            try:
                time.sleep(PAUSE)
            finally:
                os.kill(broker.part.pid, signal.SIGCONT)
            found.progressed()
        found.tailrace.wait_ready("pipeline", PATIENCE)
        found.proof.settle(PATIENCE, once=False)
    finally:
        found.proof.close()
        found.tailrace.stop()
