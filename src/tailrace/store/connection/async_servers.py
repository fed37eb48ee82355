"""The servers of the gateway: as `servers`, for the tasks of an event loop, and for the pub/sub link."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import redis.asyncio

from tailrace.store.connection import clients
from tailrace.store.connection.address import Address, Node
from tailrace.store.connection.outages import Unavailable, unavailable
from tailrace.store.connection.topology import Topology, holder, nowhere

# Commands that are under way at a time. Each has a connection of its own, which stays: ten thousand clients that come
# at once must not be as many connections.
MOST = 32


class AsyncServers:
    """For the tasks of one event loop. Nothing is opened before it is used."""

    def __init__(self, url: str) -> None:
        self._topology = Topology(Address.parse(url))
        self._clients: dict[Node, redis.asyncio.Redis] = {}
        self._advisers: dict[Node, redis.asyncio.Redis] = {}
        self._asking = asyncio.Lock()
        self._room = asyncio.Semaphore(MOST)

    @asynccontextmanager
    async def at(self, key: bytes) -> AsyncIterator[redis.asyncio.Redis]:
        """The client of the server that holds a key; raises Unavailable for whatever that server refuses.

        Who has one waits for nobody else who needs one: there are only so many.
        """
        async with self._room:
            node = await self.node(key)
            client = await self._client(node)
            try:
                yield client
            except clients.ERRORS as error:
                await client.connection_pool.disconnect(inuse_connections=False)
                self._topology.doubt()
                raise cast(Unavailable, unavailable(error, node, always=True)) from None

    async def node(self, key: bytes) -> Node:
        """The server that holds a key."""
        await self._know()
        return holder(self._topology, key)

    async def together(self, keys: Sequence[bytes]) -> list[list[int]]:
        """Which of these keys, by their places in the list, are on one server: each group can be asked for at once."""
        groups: defaultdict[Node, list[int]] = defaultdict(list)
        for n, key in enumerate(keys):
            groups[await self.node(key)].append(n)
        return list(groups.values())

    async def nodes(self) -> list[Node]:
        """All servers that hold data: the master, or the masters of the Cluster."""
        await self._know()
        return self._topology.nodes

    async def connected(self, node: Node) -> Any:
        """A plain connection of its own to a server, for pub/sub."""
        connection = clients.link(node)
        try:
            await connection.connect()
        except clients.ERRORS as error:
            await connection.disconnect(nowait=True)
            self._topology.doubt()
            raise cast(Unavailable, unavailable(error, node, always=True)) from None
        return connection

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
            info = await clients.command(self._adviser(node), "CLUSTER", "INFO")
        except clients.ERRORS:
            return False
        return b"cluster_state:ok" in (info.encode() if isinstance(info, str) else info)

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
                answer = await clients.command(self._adviser(adviser), *topology.question)
                if topology.learn(adviser, answer, now):
                    return
            except clients.ERRORS as error:
                failure = unavailable(error, adviser, always=True)
                topology.silent(adviser, now)
        if not topology.known and not topology.go_on():
            raise failure or nowhere(topology)

    async def _client(self, node: Node) -> redis.asyncio.Redis:
        found = self._clients.get(node)
        if found is None:
            gone = [self._clients.pop(other) for other in self._clients.keys() - set(self._topology.nodes)]
            found = self._clients[node] = clients.async_client(node)
            for client in gone:
                await client.aclose()
        return found

    def _adviser(self, node: Node) -> redis.asyncio.Redis:
        if node not in self._advisers:
            self._advisers[node] = clients.async_adviser(node)
        return self._advisers[node]
