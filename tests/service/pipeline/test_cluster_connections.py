"""A cluster of two workers: nobody reads rows on its wires, and nobody joins it without the secret."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from running import PATIENCE
from spark_cluster import Packets, SparkCluster
from tailrace.dev.broker import Broker
from tailrace.dev.parts import Part

SECRET = "k3pt-by-m4ster-and-w0rkers"
PROTECTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": SECRET,
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.master.rest.enabled": "false",
}
MARK = "r0w-that-n0body-reads"
MODULE = """
from tailrace import App
app = App("{fresh}")
names = app.topic("names-{fresh}", value="name string", format="json")
counts = app.view("counts-{fresh}", names, key="name", columns={{"times": "count(*)"}}, to="counted-{fresh}")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark") / "cluster", PROTECTED)
    cluster.start()
    yield cluster
    cluster.stop()


class OnCluster:
    """The command, on the cluster."""

    def __init__(self, directory: Path, broker: Broker, cluster: SparkCluster, secret: str) -> None:
        self.fresh = f"wire{uuid4().hex[:8]}"
        directory.mkdir(parents=True)
        (directory / "wired.py").write_text(MODULE.format(fresh=self.fresh))
        self.broker, self.directory = broker, directory
        self.command = [sys.executable, "-m", "tailrace", "pipeline", "wired:app", "--kafka", broker.address]
        self.command += ["--create-topics", "all", "--checkpoints", str(directory / "checkpoints")]
        self.command += ["--checkpoints-shared", "yes", "--rehearse", "no", "--spark-master", cluster.master]
        self.environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TAILRACE_SPARK_SECRET": secret}

    def counted(self, names: list[str]) -> dict[str, bytes]:
        """Produce names, and wait for a row of each."""
        producer = Producer({"bootstrap.servers": self.broker.address})
        consumer = Consumer({"bootstrap.servers": self.broker.address, "group.id": self.fresh})
        consumer.assign([TopicPartition(f"counted-{self.fresh}", number, 0) for number in (0, 1)])
        rows: dict[str, bytes] = {}
        for name in names:
            producer.produce(f"names-{self.fresh}", f'{{"name":"{name}"}}')
        assert producer.flush(30) == 0
        while len(rows) < len(names):
            record = consumer.poll(PATIENCE)
            assert record is not None and record.error() is None
            rows[str(record.key())] = record.value() or b""
        consumer.close()
        return rows


def command_lines() -> bytes:
    """The command lines of all processes of the machine."""
    found = b""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += process.read_bytes()
    return found


def test_rows_are_read_nowhere_but_on_the_way_from_and_to_kafka(
    tmp_path: Path, broker: Broker, cluster: SparkCluster
) -> None:
    pipeline = OnCluster(tmp_path / "app", broker, cluster, SECRET)
    try:
        wire = Packets(MARK.encode())
    except PermissionError:
        pytest.skip("needs the right to read packets (CAP_NET_RAW)")
    part = Part(
        "pipeline", pipeline.command, tmp_path / "log", cwd=pipeline.directory, environment=pipeline.environment
    )
    try:
        with wire:
            part.wait(lambda: b"created topic counted-" in part.log.read_bytes(), PATIENCE)
            pipeline.counted([f"{MARK}-{number}" for number in range(20)])
        assert SECRET.encode() not in command_lines()
    finally:
        part.stop()
        print(part.tail(60))
    assert {"127.0.0.2", "127.0.0.3"} <= {source[0] for source, _ in wire.packets}
    to_kafka = {ends for ends in wire.found if any(port == broker.port for _, port in ends)}
    assert to_kafka and set(wire.found) == to_kafka
    assert SECRET not in part.log.read_text() + cluster.logs()


def test_a_wrong_secret_is_refused_in_one_line(tmp_path: Path, broker: Broker, cluster: SparkCluster) -> None:
    pipeline = OnCluster(tmp_path / "app", broker, cluster, wrong := "an0ther-s3cret")
    done = subprocess.run(
        pipeline.command,
        cwd=pipeline.directory,
        env=pipeline.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    # Spark's own log says it as well, at its own time.
    said = [line for line in done.stderr.splitlines() if line.startswith("tailrace: ")]
    assert done.returncode == 1 and len(said) == 1, done.stderr
    assert f"--spark-master: expected the master at {cluster.master}" in said[0]
    assert "spark.authenticate.secret" in said[0] and wrong not in done.stderr + done.stdout
