"""Redis fails in every way that it can while records flow; then it holds what the changelog says, by itself."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import redis

from flowing import Load, assert_whole, flowing, following, rising, says
from materializing import Changelog, running
from redis_topologies import paused
from running import eventually
from services import NewRedis
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port
from tailrace.dev.probe import http_answers
from tailrace.dev.redis_server import RedisServer


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
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
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
        report = httpx.get(url, timeout=30)
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
