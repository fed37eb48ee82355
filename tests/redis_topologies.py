"""Redis in all its forms, for tests: behind TLS, as master and replica under Sentinels, and as a Cluster."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

from running import eventually
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.probe import redis_answers
from tailrace.dev.redis_server import RedisServer, find_redis_server

MASTER = "mymaster"
# A replica is in step at once, and a node that died is noticed soon.
_QUICK = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
_NODE_TIMEOUT = "1000"


def client_of(url: str) -> Any:
    """A client of the library's own for any topology, so that tests do not look through what they test."""
    parts = urlsplit(url)
    pairs = (one.partition(":") for one in parts.netloc.split(","))
    hosts = [(host, int(port)) for host, _, port in pairs if port.isdigit()]
    if parts.scheme == "redis+sentinel":
        sentinel: Any = Sentinel
        return sentinel(hosts, socket_timeout=1).master_for(MASTER, socket_timeout=5)
    if parts.scheme == "redis+cluster":
        node: Any = ClusterNode
        return RedisCluster(startup_nodes=[node(*host) for host in hosts], socket_timeout=5)
    return redis.Redis.from_url(url)


@contextmanager
def paused(server: RedisServer) -> Iterator[None]:
    """A server that does nothing, and goes on where it was."""
    os.kill(server.part.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.part.pid, signal.SIGCONT)


class Watched:
    """A master and a replica under Sentinels that act within a second or two."""

    def __init__(self, directory: Path, sentinels: int = 3) -> None:
        self.master = RedisServer(directory / "master", options=_QUICK)
        self.master.start()
        self.replica = RedisServer(
            directory / "replica", options=(*_QUICK, "--replicaof", LOOPBACK, str(self.master.port))
        )
        self.replica.start()
        self._ports = [free_port() for _ in range(sentinels)]
        self._sentinels = [self._sentinel(directory / f"sentinel-{port}", port) for port in self._ports]
        self.url = f"redis+sentinel://{','.join(f'{LOOPBACK}:{port}' for port in self._ports)}/{MASTER}/0"
        eventually(self._in_step, "the Sentinels know the replica and each other")

    def master_port(self) -> int | None:
        """The port of the server that a Sentinel names as master now."""
        for port in self._ports:
            with suppress(redis.RedisError), redis.Redis(port=port, socket_timeout=1) as client:
                return int(cast(Any, client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER))[1])
        return None

    def name(self, server: RedisServer) -> None:
        """Have the Sentinels name another server as master, and leave the old one alone."""
        for port in self._ports:
            with redis.Redis(port=port) as client:
                sentinel: Any = client
                sentinel.execute_command("SENTINEL", "REMOVE", MASTER)
                sentinel.execute_command("SENTINEL", "MONITOR", MASTER, LOOPBACK, server.port, 2)

    def stop(self) -> None:
        """Stop everything."""
        for part in self._sentinels:
            part.kill()
        for server in (self.replica, self.master):
            server.stop()

    def _sentinel(self, directory: Path, port: int) -> Part:
        directory.mkdir(parents=True)
        configuration = directory / "sentinel.conf"
        quorum = len(self._ports) // 2 + 1
        configuration.write_text(
            f"port {port}\nbind {LOOPBACK}\ndir {directory}\n"
            f"sentinel monitor {MASTER} {LOOPBACK} {self.master.port} {quorum}\n"
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
    """Three masters, each with a third of the slots; with TLS, clients are told of proxies."""

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
        """Move the slot of a key to another node, key by key, as a resharding does."""
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
        """Stop every node."""
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


class TlsProxy:
    """TLS in front of a server that has none: what a client sees is a Redis with TLS that asks for its certificate."""

    def __init__(self, directory: Path, port: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._to = port
        self.ca, self.certificate, self.key = certificates(directory)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        started = threading.Event()
        self._loop.call_soon(started.set)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(10)

    @property
    def url(self) -> str:
        """The URL of a client that proves who it is."""
        return f"rediss://{LOOPBACK}:{self.port}/0?{self.options}"

    @property
    def options(self) -> str:
        """What a URL says of certificates."""
        return f"ssl_ca_certs={self.ca}&ssl_certfile={self.certificate}&ssl_keyfile={self.key}"

    def stop(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, LOOPBACK, self.port, ssl=context))
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOOPBACK, self._to)
        with suppress(OSError, asyncio.CancelledError):
            tasks = [asyncio.create_task(_pass_on(reader, back)), asyncio.create_task(_pass_on(there, writer))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        for one in (writer, back):
            one.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


def certificates(directory: Path) -> tuple[Path, Path, Path]:
    """An authority and a certificate of it for the loopback address, with its key; as files, made once."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    if key.exists():
        return certificate, certificate, key
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False)
        .sign(own, hashes.SHA256())
    )
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, certificate, key
