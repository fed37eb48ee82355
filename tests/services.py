"""Real services for tests: some for the whole run, and private ones for tests that break them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from registry_server import RegistryServer
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

NewBroker = Callable[..., Broker]
NewRedis = Callable[..., RedisServer]


class Services:
    """Starts services, each in its own directory, and stops them all, the last one first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Broker | RedisServer | RegistryServer] = []

    def broker(self, **options: Any) -> Broker:
        """A started broker; options as for `Broker`."""
        broker = Broker(self._place("kafka"), **options)
        self._started.append(broker)
        broker.start()
        return broker

    def redis(self, **options: Any) -> RedisServer:
        """A started Redis; options as for `RedisServer`."""
        server = RedisServer(self._place("redis"), **options)
        self._started.append(server)
        server.start()
        return server

    def registry(self) -> RegistryServer:
        """A started schema registry, empty."""
        server = RegistryServer(self._place("registry"))
        self._started.append(server)
        server.start()
        return server

    def stop(self) -> None:
        while self._started:
            self._started.pop().stop()

    def _place(self, name: str) -> Path:
        return self._directory / f"{name}-{len(self._started)}"
