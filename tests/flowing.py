"""Records that flow while Redis fails, a witness that watches meanwhile, and what Redis must hold afterwards.

The writer of the records counts what Redis must hold. The witness reads positions: they only rise, unless
Redis itself has lost something.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import redis

from gateway_process import GatewayProcess
from materializing import PARTITIONS, Changelog, ready, running
from running import eventually
from sse import Follower
from tailrace.materializer.materializer import Materializer
from tailrace.store.layout.keys import partition_keys

KEYS = 30


class Load:
    """Writes changes of random keys until `stop`, without a pause, and knows what Redis must hold after them."""

    def __init__(self, log: Changelog, seed: int) -> None:
        self._log = log
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows: dict[bytes, tuple[int, int, bytes | None]] = {}
        self.written = 0

    def start(self) -> None:
        self._thread.start()

    def flow(self, records: int = 200) -> None:
        """Wait until that many more records were written."""
        target = self.written + records
        eventually(lambda: self.written >= target, "records are written")

    def stop(self) -> None:
        """Write no more, and wait until the broker has every record."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        version = 0
        while not self._stop.is_set():
            for _ in range(10):
                version += 1
                key = b"%d" % self._chance.randrange(KEYS)
                # The first key always has a row, for the clients that follow it.
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
    """The stored offset of each partition; -1 if there is none."""
    with redis.Redis.from_url(url, socket_timeout=1) as client:
        names = [partition_keys(log.prefix, log.view, number).position for number in range(PARTITIONS)]
        found = [cast(bytes | None, client.hget(cast(str, name), "offset")) for name in names]
    return [-1 if offset is None else int(offset) for offset in found]


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
    """Assert that positions only rise meanwhile."""
    witness = Witness(log, url)
    try:
        yield
    finally:
        witness.stop()
    assert witness.reads > 0 and witness.fell == 0


@contextmanager
def following(log: Changelog, url: str, directory: Path, **timing: Any) -> Iterator[Callable[[], list[int]]]:
    """The versions of the first key that a client has seen; asserts at the end that they have only risen."""
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
    """Assert that at quiet Redis holds what was written, key by key, and the materializer is well."""
    load.stop()
    expected = {key: held for key, held in load.rows.items() if held[2] is not None}

    def present() -> dict[bytes, tuple[int, int, bytes | None]]:
        return {key: held for key, held in log.rows(url).items() if held[2] is not None}

    eventually(lambda: present() == expected, "Redis equals the recount")
    ready(materializer)
