"""The embedded Redis: real, and still itself after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from services import NewRedis
from tailrace import App
from tailrace.dev.locks import Locks
from tailrace.dev.probe import redis_answers
from tailrace.dev.redis_server import RedisServer


def test_a_started_redis_takes_writes_at_once(redis_server: RedisServer, fresh: str) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(fresh, "here")
        assert client.get(fresh) == b"here"


def test_data_survives_kill_and_orderly_stop(new_redis: NewRedis) -> None:
    server = new_redis()
    with redis.Redis.from_url(server.url) as client:
        client.set("one", "1")
    server.kill()
    assert not redis_answers("127.0.0.1", server.port)
    server.start()
    with redis.Redis.from_url(server.url) as client:
        client.set("two", "2")
    server.stop()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        assert client.mget("one", "two") == [b"1", b"2"]


def test_a_locked_redis_lets_in_its_users_alone_by_tls_if_it_can(new_redis: NewRedis, tmp_path: Path) -> None:
    locks = Locks(tmp_path / "locks", App("movies"))
    server = new_redis(locks=locks.redis)
    assert server.url.startswith("rediss:") is server.encrypted
    with redis.Redis.from_url(locks.admin_url(server)) as admin:
        admin.set("one", "1")
    with redis.Redis.from_url(server.url) as nobody, pytest.raises(redis.AuthenticationError):
        nobody.get("one")
    with redis.Redis(port=server.port) as plain, pytest.raises((redis.AuthenticationError, redis.ConnectionError)):
        plain.get("one")
    server.kill()
    server.start()
    with redis.Redis.from_url(locks.admin_url(server)) as admin:
        assert admin.get("one") == b"1"
