"""Several materializers share the partitions and come and go: nobody sees a gap or a step back."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from hearing import heard_before
from materializing import Changelog, ready, running
from running import eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.row import unpack

KEYS = [b"%d" % n for n in range(40)]


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    return Changelog(broker, fresh)


class Flow:
    """Writes versions of every key, with replays of older ones among them, and keeps what must come of it."""

    def __init__(self, log: Changelog) -> None:
        self.expected: dict[bytes, tuple[int, int, bytes | None]] = {}
        self._log = log
        self._version = 0

    def go_on(self) -> None:
        self._version += 2
        for n, key in enumerate(KEYS):
            value = None if (n + self._version) % 5 == 0 else b'{"version":%d}' % self._version
            self._log.put(key, self._version, value)
            self.expected[key] = (1, self._version, value)
            if n % 7 == 0:
                self._log.put(key, self._version - 1, b'"a replay"')


def published(listener: Any, log: Changelog, url: str) -> dict[bytes, list[int]]:
    """Per key the versions that were published since the last call."""
    end = f"{log.prefix}:x:changes:lineage:end".encode()
    redis.Redis.from_url(url).publish(end, "")
    found: dict[bytes, list[int]] = defaultdict(list)
    for message in heard_before(listener, end):
        found[message["channel"].rpartition(b":")[2]].append(unpack(message["data"]).version)
    return found


def test_instances_come_and_go_while_records_flow_and_rows_and_publishes_are_as_if_there_were_one(
    log: Changelog, redis_server: RedisServer
) -> None:
    url, flow = redis_server.url, Flow(log)
    listener = redis.Redis.from_url(url).pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    listener.psubscribe(f"{log.prefix}:*:changes:*")
    instances = [ExitStack() for _ in range(3)]
    try:
        first = instances[0].enter_context(running(log, url, most=4))
        ready(first)
        flow.go_on()
        for instance in instances[1:]:
            instance.enter_context(running(log, url, most=4))
            flow.go_on()
            flow.go_on()
        eventually(lambda: log.rows(url) == flow.expected, "the rows of three instances")
        for instance in instances[:2]:
            flow.go_on()
            instance.close()
            flow.go_on()
        eventually(lambda: log.rows(url) == flow.expected, "the rows of the last instance")
    finally:
        for instance in instances:
            instance.close()
    heard = published(listener, log, url)
    assert heard.keys() == set(KEYS)
    for key, versions in heard.items():
        assert versions == sorted(set(versions)), f"{key!r} only rises"
        assert versions[-1] == flow.expected[key][1]
