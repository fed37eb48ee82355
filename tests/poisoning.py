"""A materializer process under attack, and what attackers write: records, commands and messages of any kind."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import httpx

from materializing import Changelog
from running import eventually
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port


class MaterializerProcess:
    """A materializer process of an app. `start` may be called again after `stop`."""

    def __init__(self, directory: Path, log: Changelog, redis: str) -> None:
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        self._command = [sys.executable, "-m", "tailrace", "materializer", log.app, "--kafka", log.broker.address]
        self._command += ["--redis", redis, "--prefix", log.prefix, "--health-port", str(port)]
        self._log = directory / "materializer.log"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._part = Part("materializer", self._command, self._log)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it says that it is ready."""
        eventually(lambda: self._get("/health/ready") is not None, "the materializer is ready")

    def metric(self, sample: str) -> float:
        """One sample of its metrics; 0 if it is not there, -1 if the process does not answer."""
        if (page := self._get("/metrics")) is None:
            return -1.0
        found = re.search(rf"^{re.escape(sample)} (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found is not None else 0.0

    def stop(self) -> None:
        self._part.stop()

    def _get(self, path: str) -> str | None:
        assert self._part.running, self._part.tail(80)
        try:
            answer = httpx.get(self._url + path, timeout=10)
        except httpx.HTTPError:
            return None
        return answer.text if answer.status_code == 200 else None


ODD = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    float("inf"),
    "",
    "x",
    "\ud800",
    [],
    {},
    [[1]],
    {"x": None},
    'a"b',
    "^.*",
    "a" * 300,
]
DEEP = b"[" * 100_000
GARBAGE = [b"", b"null", b"{", b"\xff\xfe", b"[]", b"7", b'"x"', DEEP, b'{"a":' * 50_000, b"1" * 10_000, b"{}"]


def damaged(chance: random.Random, data: bytes) -> bytes:
    """A JSON object with one part replaced by something unexpected."""
    found = json.loads(data)
    at: Any = found
    while True:
        places = list(at) if isinstance(at, dict) else list(range(len(at)))
        place = chance.choice(places)
        inner = at[place]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            at = inner
            continue
        if isinstance(at, dict) and chance.random() < 0.3:
            del at[place]
        else:
            at[place] = chance.choice(ODD)
        return json.dumps(found).encode()
