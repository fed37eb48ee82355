"""A gateway over a store that the test fills, behind a network that it can break."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from conformance.client_process import ClientProcess
from conformance.network import Network
from gateway_process import GatewayProcess, Store, view
from running import eventually
from tailrace.dev.redis_server import RedisServer

LANGUAGES = ("python", "javascript")

VIEW = "averages"
# Another one with the same key, to be built anew.
ANEW = "averages-anew"


class World:
    """Two views of one app; clients reach the gateway at `url`, whichever process it is."""

    def __init__(self, directory: Path, redis: RedisServer, app: str, **timing: float) -> None:
        self._directory, self._redis, self._app, self._timing = directory, redis, app, timing
        self.store = Store(redis.url, app, view(VIEW), view(ANEW))
        self.store.publish_catalog()
        self.store.begin()
        self._versions: Counter[tuple[str, str]] = Counter()
        self._gateways: list[GatewayProcess] = []
        self._stopped: list[GatewayProcess] = []
        self._clients: list[ClientProcess] = []
        self._keys = count(1)
        self.gateway = self._start()
        self.network = Network(self.gateway.port)
        self.url = self.network.url

    def keys(self, number: int) -> list[str]:
        """Keys that no other test has."""
        return [str(next(self._keys)) for _ in range(number)]

    def put(self, key: str, rating: float, *, name: str = VIEW, generation: int = 1) -> dict[str, Any]:
        """Change a row; returns it."""
        row = {"movie_id": int(key), "rating": rating}
        self._put(name, key, json.dumps(row).encode(), generation)
        return row

    def remove(self, key: str) -> None:
        """Let a key be gone."""
        self._put(VIEW, key, None, 1)

    def client(self, language: str, transport: str, **options: Any) -> ClientProcess:
        """A client; it is ended with the world at the latest."""
        self._clients.append(ClientProcess(language, self.url, transport, **options))
        return self._clients[-1]

    def clients(self, *transports: str) -> list[ClientProcess]:
        """A client in each language over each of the transports."""
        return [self.client(language, transport) for language in LANGUAGES for transport in transports]

    def connections(self) -> float:
        """How many WebSockets the gateway has."""
        return self.gateway.metric('tailrace_gateway_connections{surface="ws"}')

    def rows_sent(self) -> float:
        """How many rows the gateway has written to clients."""
        sample = 'tailrace_gateway_frames_total{{kind="row",surface="{}"}}'
        return sum(self.gateway.metric(sample.format(surface)) for surface in ("sse", "ws"))

    def kill_gateway(self) -> None:
        """SIGKILL the gateway."""
        gone = self._gateways.pop()
        gone.process.kill()
        gone.process.wait(30)

    def stop_gateway(self) -> None:
        """Let the gateway drain and end; clients on plain sockets stay, to see how."""
        self._stopped.append(self._gateways.pop())
        assert self._stopped[-1].stop() == 0

    def start_gateway(self) -> None:
        """Start another one, which clients then reach."""
        self.gateway = self._start()
        self.network.target = self.gateway.port

    def build_anew(self, rows: dict[str, float]) -> None:
        """Serve a generation 2 of the other view that has these rows only."""
        for key, rating in rows.items():
            self.put(key, rating, name=ANEW, generation=2)
        self.store.replace(view(VIEW), view(ANEW, generation=2))
        sample = f'tailrace_generation{{view="{ANEW}"}}'
        eventually(lambda: self.gateway.metric(sample) == 2, "the gateway has the catalog")
        self.store.serve(ANEW)

    def close(self) -> None:
        """End clients, network and gateway."""
        for client in self._clients:
            client.kill()
        self.network.close()
        for gateway in (*self._stopped, *self._gateways):
            gateway.close()

    def _start(self) -> GatewayProcess:
        gateway = GatewayProcess(self._directory, self._redis.url, self._app, **self._timing)
        self._gateways.append(gateway)
        gateway.wait_ready()
        return gateway

    def _put(self, name: str, key: str, value: bytes | None, generation: int) -> None:
        self._versions[name, key] += 1
        self.store.put(name, key, self._versions[name, key], value, generation=generation)


@contextmanager
def world(directory: Path, redis: RedisServer, app: str, **timing: float) -> Iterator[World]:
    """A world, until the context ends."""
    made = World(directory, redis, app, **timing)
    try:
        yield made
    finally:
        made.close()
