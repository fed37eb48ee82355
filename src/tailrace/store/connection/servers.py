"""The servers of the materializer: one, the master that Sentinels name, or the nodes of a Cluster.

`at(key)` gives the client of the server that holds a key, for the time of a `with`. An error there that means "wait"
leaves it as `Unavailable`, and where everything is will be asked anew. A thin shell around `Topology`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import redis

from tailrace.store.connection import clients
from tailrace.store.connection.address import Address, Node
from tailrace.store.connection.outages import unavailable
from tailrace.store.connection.topology import Topology, holder, nowhere


class Servers:
    """For one thread at a time. Nothing is opened before it is used, so that a process starts without Redis."""

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
        except clients.ERRORS as error:
            outage = unavailable(error, node)
            if outage is None:
                raise
            # A name may stand for another server by now: it is resolved again.
            client.connection_pool.disconnect()
            self._topology.doubt()
            raise outage from None

    def node(self, key: bytes) -> Node:
        """The server that holds a key."""
        now = time.monotonic()
        if not self._topology.known:
            self._ask(now)
        elif self._topology.due(now):
            self._ask(now, most=1)
        return holder(self._topology, key)

    def together(self, keys: Sequence[bytes]) -> list[list[int]]:
        """Which of these keys, by their places in the list, are on one server: each group can be asked for at once."""
        groups: defaultdict[Node, list[int]] = defaultdict(list)
        for n, key in enumerate(keys):
            groups[self.node(key)].append(n)
        return list(groups.values())

    def close(self) -> None:
        """Close the connections."""
        for client in (*self._clients.values(), *self._advisers.values()):
            client.close()

    def _ask(self, now: float, most: int | None = None) -> None:
        topology, failure = self._topology, None
        for adviser in topology.advisers(now)[:most]:
            try:
                if topology.learn(adviser, clients.command(self._adviser(adviser), *topology.question), now):
                    return
            except clients.ERRORS as error:
                failure = unavailable(error, adviser, always=True)
                topology.silent(adviser, now)
        if not topology.known and not topology.go_on():
            raise failure or nowhere(topology)

    def _client(self, node: Node) -> redis.Redis:
        if node not in self._clients:
            for gone in self._clients.keys() - set(self._topology.nodes):
                self._clients.pop(gone).close()
            self._clients[node] = clients.client(node)
        return self._clients[node]

    def _adviser(self, node: Node) -> redis.Redis:
        if node not in self._advisers:
            self._advisers[node] = clients.adviser(node)
        return self._advisers[node]
