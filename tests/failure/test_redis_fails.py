"""Redis fails in every way that it can while records flow; then it holds what the changelog says, without an operator.

What Redis must hold is counted by who writes the records. While it fails, a witness reads positions: they only rise,
except where Redis itself has lost something.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import redis

from gateway_process import GatewayProcess
from materializing import PARTITIONS, Changelog, ready, running
from redis_topologies import Cluster, Watched, paused
from running import eventually
from services import NewRedis
from sse import Follower
from tailrace.dev.broker import Broker
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port
from tailrace.dev.probe import http_answers
from tailrace.dev.redis_server import RedisServer
from tailrace.materializer.materializer import Materializer
from tailrace.store.keys import default_prefix, partition_keys

KEYS = 30


class Load:
    """Changes of random keys, without a pause until `stop`; and what Redis must hold after them."""

    def __init__(self, log: Changelog, seed: int) -> None:
        self._log = log
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows: dict[bytes, tuple[int, int, bytes | None]] = {}
        self.written = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def flow(self, records: int = 200) -> None:
        """Wait until that many more records were written."""
        target = self.written + records
        eventually(lambda: self.written >= target, "records are written")

    def stop(self) -> None:
        """Write no more; every record is with the broker."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        version = 0
        while not self._stop.is_set():
            for _ in range(10):
                version += 1
                key = b"%d" % self._chance.randrange(KEYS)
                # The first key is there at all times, for those who follow it.
                value = None if key != b"0" and self._chance.random() < 0.2 else b'{"n":%d}' % version
                self._log.put_later(key, version, value)
                self.rows[key] = (1, version, value)
            self._log.flush()
            self.written += 10
            self._stop.wait(0.01)


class Witness:
    """Reads all positions, again and again; `fell` counts how often one was lower than before."""

    def __init__(self, log: Changelog, url: str) -> None:
        self._log = log
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.fell = 0
        self.reads = 0
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        highest = [-1] * PARTITIONS
        while not self._stop.wait(0.02):
            try:
                found = offsets(self._log, self._url)
            except redis.RedisError:
                continue
            self.reads += 1
            self.fell += any(now < before for now, before in zip(found, highest, strict=True))
            highest = found


def offsets(log: Changelog, url: str) -> list[int]:
    """The stored offset of each partition; -1 where there is none."""
    with redis.Redis.from_url(url, socket_timeout=1) as client:
        names = [partition_keys(log.prefix, log.view, number).position for number in range(PARTITIONS)]
        found = [cast(bytes | None, client.hget(cast(str, name), "offset")) for name in names]
    return [-1 if offset is None else int(offset) for offset in found]


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    log = Changelog(broker, fresh)
    log.prefix = default_prefix(log.app)
    return log


@pytest.fixture
def load(log: Changelog) -> Iterator[Load]:
    load = Load(log, seed=1)
    yield load
    load.stop()


@contextmanager
def flowing(log: Changelog, load: Load, url: str) -> Iterator[Materializer]:
    """A materializer that is ready, and records that flow through it."""
    with running(log, url) as materializer:
        ready(materializer)
        load.start()
        load.flow()
        yield materializer


@contextmanager
def rising(log: Changelog, url: str) -> Iterator[None]:
    """Positions only rise meanwhile."""
    witness = Witness(log, url)
    try:
        yield
    finally:
        witness.stop()
    assert witness.reads > 0 and witness.fell == 0


@contextmanager
def following(log: Changelog, url: str, directory: Path, **timing: float) -> Iterator[Callable[[], list[int]]]:
    """The versions that a client has seen of the first key; at the end, that they have only risen."""
    gateway = GatewayProcess(directory, url, log.app, **timing)
    try:
        gateway.wait_ready()
        follower = Follower(f"{gateway.url}/views/{log.view}/0/events")

        def versions() -> list[int]:
            return [found["n"] for found in follower.rows]

        eventually(lambda: versions() != [], "the client has a row")
        yield versions
        assert versions() == sorted(set(versions())), "a version came again or went back"
        follower.close()
    finally:
        gateway.close()


def says(materializer: Materializer, text: str) -> None:
    eventually(lambda: text in " ".join(materializer.reasons()), f"health says {text!r}")


def assert_whole(log: Changelog, load: Load, url: str, materializer: Materializer) -> None:
    """At quiet, Redis holds what was written, key by key, and the materializer is well."""
    load.stop()
    expected = {key: held for key, held in load.rows.items() if held[2] is not None}

    def present() -> dict[bytes, tuple[int, int, bytes | None]]:
        return {key: held for key, held in log.rows(url).items() if held[2] is not None}

    eventually(lambda: present() == expected, "Redis equals the recount")
    ready(materializer)


def test_redis_killed_and_restarted(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis()
    with rising(log, server.url), flowing(log, load, server.url) as materializer:
        server.kill()
        says(materializer, "it can't be reached")
        load.flow()
        server.start()
        assert_whole(log, load, server.url, materializer)


def test_health_and_metrics_of_the_process_say_that_redis_is_away(
    log: Changelog, load: Load, new_redis: NewRedis, tmp_path: Path
) -> None:
    server, port = new_redis(), free_port()
    command = [sys.executable, "-m", "tailrace", "materializer", log.app, "--kafka", log.broker.address]
    part = Part("materializer", [*command, "--redis", server.url, "--health-port", str(port)], tmp_path / "log")

    def lag() -> float:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        found = re.findall(r"^tailrace_materializer_lag\{.*\} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    try:
        url = f"http://127.0.0.1:{port}/health/ready"
        part.wait(lambda: http_answers(url), 60)
        load.start()
        load.flow()
        server.kill()
        load.flow(500)
        eventually(lambda: lag() >= 300, "the lag grows")
        report = httpx.get(url)
        assert report.status_code == 503 and "See whether it runs" in report.json()["reasons"][0]
        server.start()
        load.stop()
        eventually(lambda: lag() == 0 and http_answers(url), "the lag is gone")
        assert "Traceback" not in part.log.read_text()
    finally:
        part.stop()


def test_redis_emptied_while_records_flow_and_at_quiet(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis()
    client = redis.Redis.from_url(server.url)
    with flowing(log, load, server.url) as materializer:
        for _ in range(2):
            client.flushall()
            load.flow()
        assert_whole(log, load, server.url, materializer)
        client.flushall()
        assert_whole(log, load, server.url, materializer)


def test_redis_restored_from_an_old_snapshot(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server: RedisServer = new_redis(options=("--appendonly", "no"))
    with flowing(log, load, server.url) as materializer:
        redis.Redis.from_url(server.url).save()
        old = Path(shutil.copy(server.directory / "dump.rdb", server.directory / "old.rdb"))
        load.flow()
        server.kill()
        shutil.copy(old, server.directory / "dump.rdb")
        server.start()
        assert_whole(log, load, server.url, materializer)


def test_redis_started_with_a_truncated_append_only_file(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server: RedisServer = new_redis()
    with flowing(log, load, server.url) as materializer:
        server.kill()
        file = server.directory / "appendonly.aof"
        os.truncate(file, file.stat().st_size * 2 // 3)
        server.start()
        assert_whole(log, load, server.url, materializer)


def test_redis_made_a_replica_and_a_master_again(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis()
    client: Any = redis.Redis.from_url(server.url)
    with rising(log, server.url), flowing(log, load, server.url) as materializer:
        client.replicaof("127.0.0.1", 1)
        says(materializer, "it is a replica")
        load.flow()
        client.replicaof("NO", "ONE")
        assert_whole(log, load, server.url, materializer)


def test_redis_out_of_memory(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis()
    client = redis.Redis.from_url(server.url)
    with rising(log, server.url), flowing(log, load, server.url) as materializer:
        client.config_set("maxmemory", "1mb")
        client.config_set("maxmemory", "1")
        says(materializer, "it is out of memory")
        load.flow()
        client.config_set("maxmemory", "0")
        assert_whole(log, load, server.url, materializer)


def test_redis_that_can_not_save_to_its_disk(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis(options=("--appendonly", "no"))
    client = redis.Redis.from_url(server.url)
    with rising(log, server.url), flowing(log, load, server.url) as materializer:
        # A directory in the place of the file it saves to.
        (server.directory / "full.rdb").mkdir()
        client.config_set("dbfilename", "full.rdb")
        client.config_set("save", "3600 1")
        client.bgsave()
        says(materializer, "it can't save to its disk")
        load.flow()
        (server.directory / "full.rdb").rmdir()
        client.bgsave()
        assert_whole(log, load, server.url, materializer)


def test_redis_busy_with_a_script_that_does_not_end(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis()
    client = redis.Redis.from_url(server.url)
    client.config_set("lua-time-limit", "50")
    with rising(log, server.url), flowing(log, load, server.url) as materializer:

        def run_on() -> None:
            with suppress(redis.RedisError):
                client.eval("while true do end", 0)

        thread = threading.Thread(target=run_on)
        thread.start()
        says(materializer, "it runs a script that does not end")
        load.flow()
        redis.Redis.from_url(server.url).script_kill()
        thread.join()
        assert_whole(log, load, server.url, materializer)


def test_redis_that_may_drop_rows(log: Changelog, new_redis: NewRedis) -> None:
    server = new_redis(options=("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"))
    with running(log, server.url) as materializer:
        says(materializer, "expected maxmemory-policy noeviction, got allkeys-lru")


def test_redis_that_takes_the_rights_away_and_gives_them_back(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis()
    client: Any = redis.Redis.from_url(server.url)
    client.execute_command("ACL", "SETUSER", "tailrace", "on", ">secret", "allkeys", "allchannels", "+@all")
    with flowing(log, load, server.url.replace("redis://", "redis://tailrace:secret@")) as materializer:
        client.execute_command("ACL", "SETUSER", "tailrace", "-@scripting")
        says(materializer, "it refuses this user")
        load.flow()
        client.execute_command("ACL", "SETUSER", "tailrace", "+@all", "<secret", ">other")
        client.client_kill_filter(_type="normal", skipme=True)
        says(materializer, "it refuses this user")
        client.execute_command("ACL", "SETUSER", "tailrace", ">secret")
        assert_whole(log, load, server.url, materializer)


def test_redis_paused_while_another_materializer_takes_over(log: Changelog, load: Load, new_redis: NewRedis) -> None:
    server = new_redis()
    with rising(log, server.url), flowing(log, load, server.url), ExitStack() as stack:
        # The first waits for an answer with a batch under way; it is written when Redis goes on, or refused.
        with paused(server):
            load.flow()
            second = stack.enter_context(running(log, server.url))
            load.flow()
        load.flow()
        assert_whole(log, load, server.url, second)


def test_sentinels_promote_a_replica_that_lags(log: Changelog, load: Load, tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    try:
        with flowing(log, load, watched.url) as materializer, following(log, watched.url, tmp_path) as versions:
            with paused(watched.replica):
                # What is under way to the replica would still reach it: the link is cut.
                redis.Redis.from_url(watched.master.url).client_kill_filter(_type="replica")
                there = offsets(log, watched.master.url)
                load.flow()
                eventually(lambda: offsets(log, watched.master.url) > there, "the replica lacks something")
                watched.master.kill()
            eventually(lambda: watched.master_port() == watched.replica.port, "the replica is the master")
            load.flow()
            assert_whole(log, load, watched.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
            # The old master comes back as a replica, and nobody believes it.
            watched.master.start()
            assert_whole(log, load, watched.url, materializer)
    finally:
        watched.stop()


def test_sentinels_name_another_master_while_the_old_one_goes_on_answering(
    log: Changelog, load: Load, new_redis: NewRedis, tmp_path: Path
) -> None:
    watched, other = Watched(tmp_path), new_redis()
    try:
        with flowing(log, load, watched.url) as materializer, following(log, watched.url, tmp_path) as versions:
            watched.name(other)
            load.flow()
            assert_whole(log, load, other.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
    finally:
        watched.stop()


def test_nodes_of_a_cluster_killed_and_restarted(log: Changelog, load: Load, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        with flowing(log, load, cluster.url) as materializer, following(log, cluster.url, tmp_path) as versions:
            # The node that the gateway's link is on at first, and the one that has the row it follows.
            for node in {cluster.nodes[0], cluster.holder(log.keys(b"0").position)}:
                node.kill()
                says(materializer, "Redis")
                load.flow()
                node.start()
                cluster.wait_well()
                load.flow()
            assert_whole(log, load, cluster.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
    finally:
        cluster.stop()


def test_slots_of_a_cluster_moved_while_records_flow(log: Changelog, load: Load, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        with flowing(log, load, cluster.url) as materializer, following(log, cluster.url, tmp_path) as versions:
            for number in range(PARTITIONS):
                key = partition_keys(log.prefix, log.view, number).position
                at = cluster.nodes.index(cluster.holder(key))
                cluster.move(key, cluster.nodes[(at + 1) % 3])
                load.flow()
            assert_whole(log, load, cluster.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
    finally:
        cluster.stop()


def test_pub_sub_link_killed_while_a_client_follows(
    log: Changelog, load: Load, new_redis: NewRedis, tmp_path: Path
) -> None:
    server = new_redis()
    client = redis.Redis.from_url(server.url)
    with (
        flowing(log, load, server.url) as materializer,
        following(log, server.url, tmp_path, sweep=3600) as versions,
    ):
        for _ in range(5):
            client.client_kill_filter(_type="pubsub")
            load.flow(50)
        assert_whole(log, load, server.url, materializer)
        eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
