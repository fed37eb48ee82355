"""Connections to Redis, whatever it is: one server, the master that Sentinels name, or the nodes of a Cluster.

`at(key)` gives the client of the server that holds a key, for the time of a `with`. An error there that means "wait"
leaves it as `Unavailable`, and where everything is will be asked anew. `Servers` and `AsyncServers` are thin shells
around `Topology`, for the materializer and for the gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tailrace.store.address import Address, Node
from tailrace.store.outages import CODES, Unavailable, unavailable
from tailrace.store.topology import Topology

# Redis answers in well under a millisecond: one that needs seconds is as good as away. A batch may take longer.
TIMEOUT = 5.0
CONNECT_TIMEOUT = 3.0
_BATCH_TIMEOUT = 10.0
_BATCH_CONNECT_TIMEOUT = 5.0
# Where everything is, is asked while records wait.
_ASK_TIMEOUT = 1.0

_ERRORS = (redis.RedisError, OSError)


class Servers:
    """For one thread. Nothing is opened before it is used, so that a process starts without Redis."""

    def __init__(self, url: str) -> None:
        self._topology = Topology(Address.parse(url))
        self._clients: dict[Node, redis.Redis] = {}
        self._advisers: dict[Node, redis.Redis] = {}

    @contextmanager
    def at(self, key: bytes) -> Iterator[redis.Redis]:
        """The client of the server that holds a key; raises Unavailable where that server can't be used."""
        node = self.node(key)
        client = self._client(node)
        try:
            yield client
        except _ERRORS as error:
            found = unavailable(error, node)
            if found is None:
                raise
            # A name may stand for another server by now: it is resolved again.
            client.connection_pool.disconnect()
            self._topology.doubt()
            raise found from None

    def node(self, key: bytes) -> Node:
        """The server that holds a key; two keys with the same one may be asked for together."""
        now = time.monotonic()
        if not self._topology.known:
            self._ask(now)
        elif self._topology.due(now):
            self._ask(now, most=1)
        return _found(self._topology, key)

    def close(self) -> None:
        """Close the connections."""
        for client in (*self._clients.values(), *self._advisers.values()):
            client.close()

    def _ask(self, now: float, most: int | None = None) -> None:
        topology, failure = self._topology, None
        for adviser in topology.advisers(now)[:most]:
            try:
                if topology.learn(adviser, _command(self._adviser(adviser), *topology.question), now):
                    return
            except _ERRORS as error:
                failure = unavailable(error, adviser, always=True)
                topology.silent(adviser, now)
        if not topology.known:
            raise failure or _nowhere(topology)

    def _client(self, node: Node) -> redis.Redis:
        if node not in self._clients:
            for gone in self._clients.keys() - set(self._topology.nodes):
                self._clients.pop(gone).close()
            self._clients[node] = redis.Redis.from_url(
                node.url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=_BATCH_TIMEOUT,
                socket_connect_timeout=_BATCH_CONNECT_TIMEOUT,
                health_check_interval=0,
            )
        return self._clients[node]

    def _adviser(self, node: Node) -> redis.Redis:
        if node not in self._advisers:
            self._advisers[node] = redis.Redis.from_url(
                node.url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=_ASK_TIMEOUT,
                socket_connect_timeout=_ASK_TIMEOUT,
                protocol=2,
            )
        return self._advisers[node]


class AsyncServers:
    """For the tasks of one event loop. Nothing is opened before it is used."""

    def __init__(self, url: str) -> None:
        self._topology = Topology(Address.parse(url))
        self._clients: dict[Node, redis.asyncio.Redis] = {}
        self._advisers: dict[Node, redis.asyncio.Redis] = {}
        self._asking = asyncio.Lock()

    @asynccontextmanager
    async def at(self, key: bytes) -> AsyncIterator[redis.asyncio.Redis]:
        """The client of the server that holds a key; raises Unavailable for whatever that server refuses."""
        node = await self.node(key)
        client = await self._client(node)
        try:
            yield client
        except _ERRORS as error:
            await client.connection_pool.disconnect(inuse_connections=False)
            self._topology.doubt()
            raise cast(Unavailable, unavailable(error, node, always=True)) from None

    async def node(self, key: bytes) -> Node:
        """The server that holds a key; two keys with the same one may be asked for together."""
        await self._know()
        return _found(self._topology, key)

    async def nodes(self) -> list[Node]:
        """All servers that hold data: the master, or the masters of the Cluster."""
        await self._know()
        return self._topology.nodes

    async def connected(self, node: Node) -> redis.asyncio.Connection:
        """A plain connection of its own to a server, for pub/sub."""
        pool = redis.asyncio.ConnectionPool.from_url(
            node.url, socket_timeout=TIMEOUT, socket_connect_timeout=CONNECT_TIMEOUT
        )
        # Also where the URL says otherwise: with protocol 3, messages come between other replies.
        pool.connection_kwargs["protocol"] = 2
        connection = cast(Any, pool).make_connection()
        try:
            await connection.connect()
        except _ERRORS as error:
            await connection.disconnect(nowait=True)
            self._topology.doubt()
            raise cast(Unavailable, unavailable(error, node, always=True)) from None
        return cast(redis.asyncio.Connection, connection)

    async def hears(self, node: Node) -> bool:
        """Whether what is published anywhere still comes to a server; True where nobody else would be better.

        A master that Sentinels have replaced hears nothing more; neither does a node that its Cluster has left behind.
        """
        kind = self._topology.address.kind
        if kind == "server":
            return True
        if kind == "sentinel":
            return node in await self.nodes()
        if await self._is_well(node):
            return True
        others = [other for other in await self.nodes() if other != node]
        return not any([await self._is_well(other) for other in others])

    async def close(self) -> None:
        """Close the connections."""
        for client in (*self._clients.values(), *self._advisers.values()):
            await client.aclose()

    async def _is_well(self, node: Node) -> bool:
        try:
            found = await _command(self._adviser(node), "CLUSTER", "INFO")
        except _ERRORS:
            return False
        return b"cluster_state:ok" in (found.encode() if isinstance(found, str) else found)

    async def _know(self) -> None:
        loop = asyncio.get_running_loop()
        if self._topology.known and not self._topology.due(loop.time()):
            return
        async with self._asking:
            now = loop.time()
            if not self._topology.known:
                await self._ask(now)
            elif self._topology.due(now):
                await self._ask(now, most=1)

    async def _ask(self, now: float, most: int | None = None) -> None:
        topology, failure = self._topology, None
        for adviser in topology.advisers(now)[:most]:
            try:
                answer = await _command(self._adviser(adviser), *topology.question)
                if topology.learn(adviser, answer, now):
                    return
            except _ERRORS as error:
                failure = unavailable(error, adviser, always=True)
                topology.silent(adviser, now)
        if not topology.known:
            raise failure or _nowhere(topology)

    async def _client(self, node: Node) -> redis.asyncio.Redis:
        if node not in self._clients:
            gone = [self._clients.pop(other) for other in self._clients.keys() - set(self._topology.nodes)]
            # One retry, for a pooled connection that has died since its last use; a timeout is not repeated.
            self._clients[node] = redis.asyncio.Redis.from_url(
                node.url,
                retry=AsyncRetry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
                socket_timeout=TIMEOUT,
                socket_connect_timeout=CONNECT_TIMEOUT,
            )
            for client in gone:
                await client.aclose()
        return self._clients[node]

    def _adviser(self, node: Node) -> redis.asyncio.Redis:
        if node not in self._advisers:
            self._advisers[node] = redis.asyncio.Redis.from_url(
                node.url,
                retry=AsyncRetry(NoBackoff(), 0),
                socket_timeout=_ASK_TIMEOUT,
                socket_connect_timeout=_ASK_TIMEOUT,
                protocol=2,
            )
        return self._advisers[node]


def _command(client: Any, *command: str) -> Any:
    # Two words, so that the client library does not shape the answer.
    return client.execute_command(*command)


def _found(topology: Topology, key: bytes) -> Node:
    node = topology.node(key)
    if node is None:
        topology.doubt()
        raise _nowhere(topology)
    return node


def _nowhere(topology: Topology) -> Unavailable:
    asked = ", ".join(seed.name for seed in topology.address.seeds)
    return Unavailable("CLUSTERDOWN", *CODES["CLUSTERDOWN"], f"no server is named by {asked}")
