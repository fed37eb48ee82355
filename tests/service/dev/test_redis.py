"""The embedded Redis: real, and still itself after a crash."""

from __future__ import annotations

import redis

from services import NewRedis
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
