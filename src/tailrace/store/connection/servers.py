"""The servers of a process: one, the master that Sentinels name, or the nodes of a Cluster.

A process makes one `Servers`, or in an event loop one `AsyncServers`, hands it to everything that talks to
Redis, and closes it at its end. `at(key)` gives the client of the server that holds a key, for the time of a
`with`. An error there that means "wait" leaves it as `Unavailable`, and the next command asks anew where
everything is. Both are thin shells around `Topology`; nothing else opens connections to Redis.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tailrace.store.connection.address import Address, Node
from tailrace.store.connection.outages import Unavailable, unavailable
from tailrace.store.connection.topology import Topology

# What a client raises while its server can't be used, and for mistakes of ours.
ERRORS = (redis.RedisError, OSError)

# Commands that one room has under way at a time. Each has a connection of its own, which stays: ten thousand
# clients that come at once must not be as many connections.
MOST = 32

# In seconds. Redis answers in well under a millisecond: one that needs seconds is as good as away.
_READ: Mapping[str, Any] = {"socket_timeout": 5.0, "socket_connect_timeout": 3.0}
# A batch may take longer.
_BATCH: Mapping[str, Any] = {"socket_timeout": 10.0, "socket_connect_timeout": 5.0}
# Records wait while an adviser is asked. Protocol 2, so that answers have one shape.
_ASK: Mapping[str, Any] = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, "protocol": 2}


class Servers:
    """For one thread at a time. Nothing is opened before it is used, so that a process starts without Redis."""

    def __init__(self, url: str) -> None:
        self._topology = Topology(Address.parse(url))
        self._clients: dict[Node, redis.Redis] = {}
        self._advisers: dict[Node, redis.Redis] = {}

    @contextmanager
    def at(self, key: bytes) -> Iterator[redis.Redis]:
        """The client of the server that holds a key; raises Unavailable if that server can't be used."""
        node = self.node(key)
        client = self._client(node)
        try:
            yield client
        except ERRORS as error:
            outage = unavailable(error, node, key=key)
            if outage is None:
                raise
            # A name may stand for another server by now: it is resolved again.
            client.connection_pool.disconnect()
            self._topology.doubt()
            raise outage from None

    def node(self, key: bytes) -> Node:
        """The server that holds a key."""
        now = time.monotonic()
        if not self._topology.settled(now):
            self._ask(now)
        return self._topology.holder(key)

    def together(self, keys: Sequence[bytes]) -> list[list[int]]:
        """Which of these keys, by their places in the list, are on one server: each group can be asked for at once."""
        return _grouped([self.node(key) for key in keys])

    def close(self) -> None:
        """Close the connections."""
        for client in (*self._clients.values(), *self._advisers.values()):
            client.close()

    def _ask(self, now: float) -> None:
        failure = None
        for adviser in self._topology.to_ask(now):
            try:
                if self._topology.learn(adviser, _command(self._adviser(adviser), *self._topology.question), now):
                    return
            except ERRORS as error:
                failure = unavailable(error, adviser, always=True)
                self._topology.silent(adviser, now)
        self._topology.make_do(failure)

    def _client(self, node: Node) -> redis.Redis:
        if node not in self._clients:
            for gone in self._clients.keys() - set(self._topology.nodes):
                self._clients.pop(gone).close()
            # The materializer waits and tries again by itself.
            self._clients[node] = redis.Redis.from_url(node.url, retry=Retry(NoBackoff(), 0), **_BATCH)
        return self._clients[node]

    def _adviser(self, node: Node) -> redis.Redis:
        if node not in self._advisers:
            self._advisers[node] = redis.Redis.from_url(node.url, retry=Retry(NoBackoff(), 0), **_ASK)
        return self._advisers[node]


@dataclass(frozen=True, slots=True)
class _Pool:
    """The client of one server, and how many more connections it may have in use."""

    client: redis.asyncio.Redis
    free: asyncio.Semaphore


class AsyncServers:
    """For the tasks of one event loop. Nothing is opened before it is used.

    Commands wait for room, not for more connections: `MOST` of them are under way at a time. `apart` has room
    of its own on the same connections, so that no crowd of commands here delays those there.
    """

    def __init__(self, url: str) -> None:
        self._topology = Topology(Address.parse(url))
        self._pools: dict[Node, _Pool] = {}
        self._advisers: dict[Node, redis.asyncio.Redis] = {}
        self._asking = asyncio.Lock()
        self._room = asyncio.Semaphore(MOST)

    def apart(self) -> AsyncServers:
        """The same servers and connections with room of their own; closing either closes both."""
        found = copy(self)
        found._room = asyncio.Semaphore(MOST)
        return found

    @asynccontextmanager
    async def at(self, key: bytes) -> AsyncIterator[redis.asyncio.Redis]:
        """The client of the server that holds a key; raises Unavailable for whatever that server refuses.

        Whoever has a client waits for nobody who needs one, and runs one command at a time.
        """
        async with self._room:
            node = await self.node(key)
            pool = await self._pool(node)
            async with pool.free:
                try:
                    yield pool.client
                except ERRORS as error:
                    await pool.client.connection_pool.disconnect(inuse_connections=False)
                    self._topology.doubt()
                    raise cast(Unavailable, unavailable(error, node, key=key, always=True)) from None

    async def node(self, key: bytes) -> Node:
        """The server that holds a key."""
        await self._know()
        return self._topology.holder(key)

    async def together(self, keys: Sequence[bytes]) -> list[list[int]]:
        """Which of these keys, by their places in the list, are on one server: each group can be asked for at once."""
        return _grouped([await self.node(key) for key in keys])

    async def nodes(self) -> list[Node]:
        """All servers that hold data: the master, or the masters of the Cluster."""
        await self._know()
        return self._topology.nodes

    async def connected(self, node: Node) -> Any:
        """A plain connection of its own to a server, for pub/sub: a subscribed connection can't be shared."""
        pool = redis.asyncio.ConnectionPool.from_url(node.url, **_READ)
        # Also if the URL says otherwise: with protocol 3, messages come between other replies.
        pool.connection_kwargs["protocol"] = 2
        connection = cast(Any, pool).make_connection()
        try:
            await connection.connect()
        except ERRORS as error:
            await connection.disconnect(nowait=True)
            self._topology.doubt()
            raise cast(Unavailable, unavailable(error, node, always=True)) from None
        return connection

    async def hears(self, node: Node) -> bool:
        """Whether what is published anywhere still comes to a server; True if no other server would be better.

        A master that Sentinels have replaced hears nothing more; neither does a node that its Cluster has
        left behind.
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
        for client in (*(pool.client for pool in self._pools.values()), *self._advisers.values()):
            await client.aclose()

    async def _is_well(self, node: Node) -> bool:
        try:
            info = await _command(self._adviser(node), "CLUSTER", "INFO")
        except ERRORS:
            return False
        return b"cluster_state:ok" in (info.encode() if isinstance(info, str) else info)

    async def _know(self) -> None:
        clock = asyncio.get_running_loop().time
        if self._topology.settled(clock()):
            return
        async with self._asking:
            now = clock()
            if not self._topology.settled(now):
                await self._ask(now)

    async def _ask(self, now: float) -> None:
        failure = None
        for adviser in self._topology.to_ask(now):
            try:
                answer = await _command(self._adviser(adviser), *self._topology.question)
                if self._topology.learn(adviser, answer, now):
                    return
            except ERRORS as error:
                failure = unavailable(error, adviser, always=True)
                self._topology.silent(adviser, now)
        self._topology.make_do(failure)

    async def _pool(self, node: Node) -> _Pool:
        found = self._pools.get(node)
        if found is None:
            gone = [self._pools.pop(other) for other in self._pools.keys() - set(self._topology.nodes)]
            # One retry, for a pooled connection that has died meanwhile; a timeout is not repeated.
            retry = AsyncRetry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
            client = redis.asyncio.Redis.from_url(node.url, retry=retry, **_READ)
            # Beyond its most connections a pool refuses: commands wait for one.
            free = asyncio.Semaphore(client.connection_pool.max_connections)
            found = self._pools[node] = _Pool(client, free)
            for pool in gone:
                await pool.client.aclose()
        return found

    def _adviser(self, node: Node) -> redis.asyncio.Redis:
        if node not in self._advisers:
            client = redis.asyncio.Redis.from_url(node.url, retry=AsyncRetry(NoBackoff(), 0), **_ASK)
            self._advisers[node] = client
        return self._advisers[node]


def _grouped(nodes: Sequence[Node]) -> list[list[int]]:
    groups: defaultdict[Node, list[int]] = defaultdict(list)
    for n, node in enumerate(nodes):
        groups[node].append(n)
    return list(groups.values())


def _command(client: Any, *words: str) -> Any:
    """Send a command word by word, so that the client library does not shape the answer."""
    return client.execute_command(*words)
