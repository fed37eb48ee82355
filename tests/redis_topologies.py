"""Redis in all its forms: behind TLS, as master and replica under Sentinels, and as a Cluster."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

from running import eventually
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.probe import redis_answers
from tailrace.dev.redis_server import RedisServer, find_redis_server
from tls_proxy import TlsProxy

MASTER = "mymaster"
# A replica is in step at once, and a dead node is noticed soon.
_QUICK = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
_NODE_TIMEOUT = "1000"


def client_of(url: str) -> Any:
    """The Redis library's own client for any topology, so that tests do not look through what they test."""
    parts = urlsplit(url)
    pairs = (one.partition(":") for one in parts.netloc.split(","))
    hosts = [(host, int(port)) for host, _, port in pairs if port.isdigit()]
    if parts.scheme in ("redis+sentinel", "rediss+sentinel"):
        sentinel: Any = Sentinel
        tls: dict[str, Any] = {name: values[0] for name, values in parse_qs(parts.query).items()}
        tls |= {"ssl": True} if parts.scheme.startswith("rediss") else {}
        found = sentinel(hosts, sentinel_kwargs={"socket_timeout": 1, **tls}, **tls)
        return found.master_for(MASTER, socket_timeout=5)
    if parts.scheme == "redis+cluster":
        node: Any = ClusterNode
        return RedisCluster(startup_nodes=[node(*host) for host in hosts], socket_timeout=5)
    return redis.Redis.from_url(url)


@contextmanager
def paused(server: RedisServer) -> Iterator[None]:
    """Pause a server; afterwards it goes on where it was."""
    os.kill(server.part.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.part.pid, signal.SIGCONT)


class Watched:
    """A master and a replica under Sentinels that act within a second or two.

    With TLS, each has a proxy in front, and Sentinels name the proxies. Clients speak TLS to the proxies; servers
    talk to each other without it.
    """

    def __init__(self, directory: Path, sentinels: int = 3, *, tls: bool = False) -> None:
        self._tls = directory / "tls" if tls else None
        self._proxies: dict[int, TlsProxy] = {}
        self.master = self._server(directory / "master")
        self.replica = self._server(directory / "replica", "--replicaof", LOOPBACK, str(self.known_as(self.master)))
        self._ports = [free_port() for _ in range(sentinels)]
        self._sentinels = [self._sentinel(directory / f"sentinel-{port}", port) for port in self._ports]
        hosts = ",".join(f"{LOOPBACK}:{self._before(port)}" for port in self._ports)
        options = f"?{self._proxies[self.master.port].options}" if tls else ""
        self.url = f"{'rediss' if tls else 'redis'}+sentinel://{hosts}/{MASTER}/0{options}"
        eventually(self._in_step, "the Sentinels know the replica and each other")

    def known_as(self, server: RedisServer) -> int:
        """The port that Sentinels name for a server."""
        return self._before(server.port)

    def master_port(self) -> int | None:
        """The port of the server that a Sentinel names as master now."""
        for port in self._ports:
            with suppress(redis.RedisError), redis.Redis(port=port, socket_timeout=1) as client:
                return int(cast(Any, client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER))[1])
        return None

    def name(self, server: RedisServer) -> None:
        """Make the Sentinels name another server as master, and leave the old one alone."""
        for port in self._ports:
            with redis.Redis(port=port) as client:
                sentinel: Any = client
                sentinel.execute_command("SENTINEL", "REMOVE", MASTER)
                sentinel.execute_command("SENTINEL", "MONITOR", MASTER, LOOPBACK, self.known_as(server), 2)

    def stop(self) -> None:
        for part in self._sentinels:
            part.kill()
        for server in (self.replica, self.master):
            server.stop()
        for proxy in self._proxies.values():
            proxy.stop()

    def _server(self, directory: Path, *options: str) -> RedisServer:
        port = free_port()
        announced = ("--replica-announce-port", str(self._before(port)))
        server = RedisServer(directory, port=port, options=(*_QUICK, *announced, *options))
        server.start()
        return server

    def _before(self, port: int) -> int:
        """The port of the proxy in front of a port, or the port itself if there are no proxies."""
        if self._tls is None:
            return port
        if port not in self._proxies:
            self._proxies[port] = TlsProxy(self._tls, port, plain=True)
        return self._proxies[port].port

    def _sentinel(self, directory: Path, port: int) -> Part:
        directory.mkdir(parents=True)
        configuration = directory / "sentinel.conf"
        quorum = len(self._ports) // 2 + 1
        configuration.write_text(
            f"port {port}\nbind {LOOPBACK}\ndir {directory}\n"
            f"sentinel monitor {MASTER} {LOOPBACK} {self.known_as(self.master)} {quorum}\n"
            f"sentinel down-after-milliseconds {MASTER} 700\n"
            f"sentinel failover-timeout {MASTER} 3000\n"
        )
        command = [str(find_redis_server()), str(configuration), "--sentinel"]
        part = Part("sentinel", command, directory / "sentinel.log")
        part.wait(lambda: redis_answers(LOOPBACK, port), 30)
        return part

    def _in_step(self) -> bool:
        found = []
        for port in self._ports:
            with redis.Redis(port=port) as client:
                state = cast(dict[str, Any], client.sentinel_masters())[MASTER]
                found.append((state["num-slaves"], state["num-other-sentinels"]))
        with redis.Redis(port=self.replica.port) as client:
            synced = cast(dict[str, Any], client.info("replication"))["master_link_status"] == "up"
        return synced and found == [(1, len(self._ports) - 1)] * len(self._ports)


class Cluster:
    """Three masters, each with a third of the slots. With TLS, clients are sent to proxies."""

    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        self.nodes: list[RedisServer] = []
        self.proxies: list[TlsProxy] = []
        for n in range(3):
            port, options = _cluster_port(), ["--cluster-enabled", "yes", "--cluster-node-timeout", _NODE_TIMEOUT]
            if tls:
                self.proxies.append(TlsProxy(directory / "tls", port))
                options += ["--cluster-announce-port", str(self.proxies[-1].port)]
            self.nodes.append(RedisServer(directory / f"node-{n}", port=port, options=tuple(options)))
            self.nodes[-1].start()
        hosts = ",".join(f"{LOOPBACK}:{one.port}" for one in self.proxies or self.nodes)
        self.url = f"rediss+cluster://{hosts}?{self.proxies[0].options}" if tls else f"redis+cluster://{hosts}"
        for n, node in enumerate(self.nodes):
            with self.client(node) as client:
                slots = range(n * 16384 // 3, (n + 1) * 16384 // 3)
                client.execute_command("CLUSTER", "ADDSLOTS", *slots)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
                client.execute_command("CLUSTER", "MEET", LOOPBACK, self.nodes[0].port)
        self.wait_well()

    def client(self, node: RedisServer) -> Any:
        """A client of one node alone."""
        return redis.Redis(port=node.port)

    def wait_well(self) -> None:
        """Wait until every node says that all slots are served."""
        eventually(lambda: all(self._is_well(node) for node in self.nodes), "the cluster is well")

    def holder(self, key: bytes) -> RedisServer:
        """The node that serves a key."""
        with client_of(self.url) as client:
            port = client.get_node_from_key(key.decode()).port
        return next(node for node in self.nodes if node.port == port)

    def move(self, key: bytes, target: RedisServer) -> None:
        """Move the slot of a key to another node, key by key, as resharding does."""
        source = self.holder(key)
        with self.client(source) as giving, self.client(target) as taking:
            slot = giving.execute_command("CLUSTER", "KEYSLOT", key)
            names = [client.execute_command("CLUSTER", "MYID") for client in (giving, taking)]
            taking.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
            giving.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
            while moving := giving.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
                for one in moving:
                    giving.execute_command("MIGRATE", LOOPBACK, target.port, one, 0, 5000)
            for client in (taking, giving):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[1])

    def stop(self) -> None:
        for proxy in self.proxies:
            proxy.stop()
        for node in self.nodes:
            node.stop()

    def _is_well(self, node: RedisServer) -> bool:
        with self.client(node) as client, suppress(redis.RedisError):
            info = client.execute_command("CLUSTER", "INFO")
            text = info if isinstance(info, bytes) else str(info).encode()
            return b"cluster_state:ok" in text and b"cluster_known_nodes:3" in text
        return False


def _cluster_port() -> int:
    """A port that is free together with the one of the cluster bus, ten thousand above."""
    while True:
        port = random.randrange(20000, 32000)
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind((LOOPBACK, port))
            other.bind((LOOPBACK, port + 10000))
            return port
