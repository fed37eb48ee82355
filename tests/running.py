"""The processes of the command line over real services, as a user runs them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer

from tailrace.dev.broker import Broker
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port
from tailrace.dev.probe import http_answers
from tailrace.dev.redis_server import RedisServer

MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", value="movie_id long, rating double", format="json")
rating_averages = app.view(
    "rating-averages-{fresh}", ratings.where("rating between 0 and 10"), key="movie_id",
    columns={{"rating": "avg(rating)", "ratings": "count(*)"}},
)
"""

# Long enough for a JVM to start on a busy machine; no test is about it.
PATIENCE = 300.0


def eventually(condition: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
    """Wait for a condition; the test fails with `what` if it does not come true."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"still waiting after {timeout:.0f} s: {what}"
        time.sleep(0.05)


class Tailrace:
    """An app of average ratings, or of another module, with names of its own, and the processes that serve it."""

    def __init__(
        self, directory: Path, broker: Broker, redis: RedisServer, fresh: str, module: str | None = None
    ) -> None:
        self.app, self.topic, self.view = f"movies-{fresh}", f"ratings-{fresh}", f"rating-averages-{fresh}"
        self.broker = broker
        self.redis = redis
        # How the processes that are started next connect to Kafka, unless it is the broker's own port.
        self.kafka_config: Path | None = None
        self.environment: dict[str, str] = {}
        self.parts: dict[str, Part] = {}
        self.directory = directory
        self._health: dict[str, str] = {}
        self.connect_producer()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "movies.py").write_text(module or MODULE.format(fresh=fresh))
        self._gateway_port = free_port()

    def connect_producer(self) -> None:
        """Write with a new producer, which knows how many partitions topics have now."""
        self._producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 1})

    @property
    def kafka_flags(self) -> tuple[str, str]:
        """The flag by which processes and commands find Kafka."""
        if self.kafka_config is not None:
            return "--kafka-config", str(self.kafka_config)
        return "--kafka", self.broker.address

    @property
    def url(self) -> str:
        """The gateway's address."""
        return f"http://127.0.0.1:{self._gateway_port}"

    def row_url(self, key: object, view: str | None = None) -> str:
        """The address of a row, in the view of averages unless another is named."""
        return f"{self.url}/views/{view or self.view}/{key}"

    def start_all(self, *pipeline_flags: str) -> None:
        """Start every process and wait until all are ready."""
        self.start_pipeline(*pipeline_flags)
        self.start_materializer()
        self.start_gateway()
        for name in ("pipeline", "materializer", "gateway"):
            self.wait_ready(name)

    def start_pipeline(self, *flags: str) -> None:
        """Start the pipeline; offsets are saved every five seconds unless the flags say otherwise."""
        own = (
            *self.kafka_flags,
            "--checkpoints",
            "checkpoints",
            "--create-topics",
            "all",
            "--rehearse",
            "no",
        )
        self._start("pipeline", "movies:app", *own, "--batch-interval", "5s", *flags)

    def start_materializer(self, *flags: str) -> None:
        self._start("materializer", self.app, *self.kafka_flags, "--redis", self.redis.url, *flags)

    def start_gateway(self, *flags: str) -> None:
        """Start the gateway, at the same port each time."""
        command = [sys.executable, "-m", "tailrace", "gateway", self.app, "--redis", self.redis.url]
        command += self.kafka_flags
        self._health["gateway"] = f"{self.url}/health/ready"
        self._begin("gateway", [*command, "--port", str(self._gateway_port), *flags])

    def health(self, name: str) -> dict[str, Any]:
        """What a process says of itself."""
        found: dict[str, Any] = httpx.get(self._health[name], timeout=30).json()
        return found

    def answers(self, name: str) -> bool:
        """Whether a process says anything of itself."""
        return http_answers(self._health[name].replace("/ready", "/live"))

    def wait_ready(self, name: str, timeout: float = PATIENCE) -> None:
        """Wait until a process says that it is ready; fails with the end of its log if it dies."""
        self.parts[name].wait(lambda: http_answers(self._health[name]), timeout)

    def kill(self, name: str) -> None:
        """SIGKILL a process and all that it started."""
        self.parts.pop(name).kill()

    def metrics(self, name: str) -> dict[str, float]:
        """The samples on a process's metrics page, by name and labels as they are printed."""
        text = httpx.get(self._health[name].replace("/health/ready", "/metrics"), timeout=30).text
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {sample: float(value) for sample, _, value in lines}

    def produce(
        self,
        *values: bytes | str | dict[str, Any] | None,
        key: bytes | None = None,
        topic: str | None = None,
        headers: dict[str, bytes] | None = None,
    ) -> None:
        """Write records to the source topic, or another, and wait until the broker has them."""
        for value in values:
            self._producer.produce(
                topic or self.topic,
                json.dumps(value) if isinstance(value, dict) else value,
                key=key,
                headers=list((headers or {}).items()),
            )
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def rate(self, ratings: Iterable[tuple[int, float]]) -> None:
        """Write ratings of movies."""
        self.produce(*({"movie_id": movie, "rating": rating} for movie, rating in ratings))

    def row(self, key: object, view: str | None = None) -> dict[str, Any] | None:
        """The answer to a lookup; None for 404, or if the gateway can't answer now."""
        try:
            response = httpx.get(self.row_url(key, view), timeout=5)
        except httpx.HTTPError:
            return None
        if response.status_code != 200:
            return None
        found: dict[str, Any] = response.json()
        return found

    def stop(self) -> None:
        """Stop what runs, the last process first. A failed test shows the ends of the logs."""
        for name in reversed(list(self.parts)):
            part = self.parts.pop(name)
            part.stop()
            print(f"the end of the log of {name}:\n{part.tail(60)}")

    def _start(self, name: str, argument: str, *flags: str) -> None:
        port = free_port()
        # Not the default address, so that every journey sees that it can be chosen.
        self._health[name] = f"http://127.0.0.2:{port}/health/ready"
        health = ["--health-host", "127.0.0.2", "--health-port", str(port)]
        self._begin(name, [sys.executable, "-m", "tailrace", name, argument, *health, *flags])

    def _begin(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, **self.environment}
        log = self.directory / f"{name}.log"
        self.parts[name] = Part(name, command, log, environment=environment, cwd=self.directory)
