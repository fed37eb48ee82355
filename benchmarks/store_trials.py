"""Trials of one contender between a filled changelog and an emptied Redis: records per second and processor time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import redis

from store_load import PARTITIONS, Load
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import partition_keys

PEER = Path(__file__).parent / "peers" / "plain_redis.py"
PATIENCE = 300.0
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Place:
    """Where a trial takes place: the services, and the directory of what contenders say."""

    kafka: str
    server: RedisServer
    logs: Path

    @property
    def client(self) -> redis.Redis:
        """A client of the Redis."""
        return redis.Redis.from_url(self.server.url)


@dataclass(frozen=True)
class Measured:
    """What a trial has found; processor time in µs per record."""

    per_s: float
    seconds: float
    process_us: float
    redis_us: float


@contextmanager
def materializers(place: Place, load: Load, instances: int) -> Iterator[list[Part]]:
    """So many materializers, each with partitions of its own; Redis holds everything."""
    ports = [free_port() for _ in range(instances)]
    command = [sys.executable, "-m", "tailrace", "materializer", load.app]
    command += ["--kafka", place.kafka, "--redis", place.server.url]
    parts: list[Part] = []
    try:
        for number, port in enumerate(ports):
            log = place.logs / f"{load.app}-{instances}-{number}.log"
            parts.append(Part(f"materializer {number}", [*command, "--health-port", str(port)], log))
        _wait(parts, lambda: all(_has_partitions(port) for port in ports))
        _wait(parts, lambda: stored(place.client, position_keys(load)) >= load.records)
        yield parts
    finally:
        for part in parts:
            part.stop()


def refill(place: Place, load: Load, instances: int) -> Measured:
    """Empty a Redis that materializers have filled: from the first record that is back to the last."""
    with materializers(place, load, instances) as parts:
        place.client.flushall()
        return _measure(place, parts, position_keys(load), load.records)


def restore(place: Place, load: Load) -> dict[str, float]:
    """Fill, then empty a Redis: bytes per key of the first, and seconds from the loss until the last row is back."""
    client = place.client
    client.flushall()
    before = used_memory(client)
    with materializers(place, load, 1) as parts:
        filled = used_memory(client) - before
        began = time.monotonic()
        client.flushall()
        _wait(parts, lambda: stored(client, position_keys(load)) >= load.records)
        return {"seconds": time.monotonic() - began, "bytes_per_key": filled / load.keys}


def plain(place: Place, load: Load, what: str = "rows") -> Measured:
    """The same records by a program of the kind that teams write: the newest row of a key, or all its events."""
    place.client.flushall()
    prefix = f"plain-{what}-{load.app}"
    command = [sys.executable, str(PEER), place.kafka, place.server.url, load.changelog, prefix, str(PARTITIONS), what]
    part = Part("plain", command, place.logs / f"{prefix}.log")
    try:
        keys = [f"{prefix}:{number}:position".encode() for number in range(PARTITIONS)]
        return _measure(place, [part], keys, load.records)
    finally:
        part.stop()


def position_keys(load: Load) -> list[bytes]:
    """Where the positions of a load's partitions are."""
    return [partition_keys(load.prefix, load.changelog, number).position for number in range(PARTITIONS)]


def stored(client: redis.Redis, keys: Sequence[bytes]) -> int:
    """How many records are in Redis."""
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.hget(key, "offset")
    return sum(int(offset) + 1 for offset in pipeline.execute() if offset is not None)


def used_memory(client: redis.Redis) -> int:
    """Bytes that Redis has allocated."""
    found: Any = client.info("memory")
    return int(found["used_memory"])


def _measure(place: Place, parts: Sequence[Part], keys: Sequence[bytes], records: int) -> Measured:
    client = place.client
    _wait(parts, lambda: stored(client, keys) > 0)
    first, began = stored(client, keys), time.monotonic()
    busy, redis_busy = sum(_cpu(part) for part in parts), _cpu(place.server.part)
    _wait(parts, lambda: stored(client, keys) >= records)
    seconds, count = time.monotonic() - began, records - first
    busy, redis_busy = sum(_cpu(part) for part in parts) - busy, _cpu(place.server.part) - redis_busy
    return Measured(count / seconds, seconds, busy / count * 1e6, redis_busy / count * 1e6)


def _wait(parts: Sequence[Part], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        for part in parts:
            part.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{', '.join(part.name for part in parts)}: not done after {PATIENCE:.0f} s")
        time.sleep(0.01)


def _cpu(part: Part) -> float:
    fields = Path(f"/proc/{part.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _has_partitions(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return b"\ntailrace_materializer_offset{" in answer.read()
    except OSError:
        return False
