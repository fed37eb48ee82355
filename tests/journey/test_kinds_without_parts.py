"""A pipeline without any of its parts that are Java: Spark's own plans give the same rows, on the same checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import histories
import kinds
from proving import Proof
from running import PATIENCE, Tailrace
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

HOUR = 3_600_000
START = int(time.time() * 1000) // HOUR * HOUR - 48 * HOUR
FLAGS = ("--state-partitions", "1", "--partitions", str(histories.PARTITIONS))


@pytest.fixture
def proof(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Proof]:
    fresh = f"-{fresh}"
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, kinds.module("few_kinds", fresh))
    found = Proof(app, kinds.few_kinds(fresh), fresh)
    yield found
    found.close()
    app.stop()


def test_views_hold_the_same_rows_and_go_on_when_parts_are_turned_off_and_on(proof: Proof) -> None:
    read = {topic.name for topic in proof.kinds.app.topics}
    for turn, parts in enumerate(("none", "all")):
        proof.tailrace.start_pipeline(*FLAGS, "--jvm-parts", parts)
        proof.tailrace.wait_ready("pipeline", PATIENCE)
        records = histories.records(histories.everything(), f"{turn}|", START, proof.fresh)
        proof.send(record for record in records if record.topic in read)
        # An open batch of real time is repeated after a stop.
        proof.settle(once=False)
        log = (proof.tailrace.directory / "pipeline.log").read_text()
        failed = {
            name: count
            for name, count in proof.tailrace.metrics("pipeline").items()
            if name.startswith("tailrace_pipeline_restarts_total") and count
        }
        assert not failed and "is left out" not in log, log[-5000:]
        assert "jvm-parts=none" in log and ("jvm-parts=json," in log) == (turn > 0), log[-5000:]
        proof.tailrace.parts["pipeline"].stop()
