"""A whole Tailrace on this machine for a benchmark: embedded services and the command line's processes."""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.access.issuing import EVERYTHING
from tailrace.declarations.loading import load_app
from tailrace.dev.broker import Broker
from tailrace.dev.locks import PRODUCER, Locks
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port
from tailrace.dev.probe import http_answers
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.security import Secrets

PATIENCE = 180.0
_TOKEN_LASTS = 24 * 60 * 60.0


@dataclass
class Stack:
    """The addresses of what runs, and its processes by name.

    If everything is locked: `redis` has the password of the user that may do everything, `token` opens the gateway, and
    `locks` say how to connect to Kafka. Without locks, whoever connects may do everything.
    """

    kafka: str
    redis: str = field(repr=False)
    gateway: str
    pipeline_metrics: str
    parts: dict[str, Part]
    locks: Locks | None = None
    token: str = field(default="", repr=False)
    redis_encrypted: bool = False

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How clients of the gateway do TLS; None if it does not."""
        return ssl.create_default_context(cafile=self.locks.authority) if self.locks is not None else None

    def kafka_client(self, kind: str, user: str = PRODUCER) -> dict[str, str | int | float | bool | None]:
        """What a client of Kafka of a kind is told in order to connect as a user."""
        known: dict[str, str | int | float | bool | None] = {"bootstrap.servers": self.kafka}
        if self.locks is not None:
            known |= KafkaConfig.read(str(self.locks.kafka_config(user)), Secrets()).librdkafka(kind)
        return known


@contextmanager
def stack(module: Path, app: str, *, batch_interval: str, secure: bool = False) -> Iterator[Stack]:
    """Start everything for `module` (a file that declares `app`), yield, stop everything.

    secure: locked as by `tailrace dev --secure`.
    """
    with tempfile.TemporaryDirectory(prefix="tailrace-benchmark-") as directory:
        place = Path(directory)
        locks = _locks(module, place / "locks") if secure else None
        broker = Broker(place / "kafka", locks=locks.broker if locks is not None else None)
        redis = RedisServer(place / "redis", locks=locks.redis if locks is not None else None)
        parts: dict[str, Part] = {}
        try:
            broker.start()
            redis.start()
            if locks is not None:
                locks.let_in(broker, redis)
            ports = {name: free_port() for name in ("pipeline", "materializer", "gateway")}
            health = {name: ["--health-port", str(port)] for name, port in ports.items()}
            own = ["--checkpoints", str(place / "checkpoints"), "--create-topics", "all"]
            commands = {
                "pipeline": [f"{module.stem}:app", *own, *health["pipeline"], "--batch-interval", batch_interval],
                "materializer": [app, *health["materializer"]],
                "gateway": [app, "--port", str(ports["gateway"])],
            }
            for name, arguments in commands.items():
                command = [sys.executable, "-m", "tailrace", name, *arguments]
                environment = dict(os.environ)
                if locks is not None:
                    environment |= locks.variables(name)
                else:
                    environment |= {"TAILRACE_KAFKA": broker.address, "TAILRACE_REDIS": redis.url}
                parts[name] = Part(name, command, place / f"{name}.log", cwd=module.parent, environment=environment)
            gateway = f"{'http' if locks is None else 'https'}://127.0.0.1:{ports['gateway']}"
            certificate = str(locks.gateway_certificate[0]) if locks is not None else ""
            for name, part in parts.items():
                base = gateway if name == "gateway" else f"http://127.0.0.1:{ports[name]}"
                part.wait(lambda base=base: http_answers(f"{base}/health/ready", certificate), PATIENCE)  # type: ignore[misc]
            yield Stack(
                kafka=broker.address,
                redis=redis.url if locks is None else locks.admin_url(redis),
                gateway=gateway,
                pipeline_metrics=f"http://127.0.0.1:{ports['pipeline']}/metrics",
                parts=parts,
                locks=locks,
                token=locks.issuer.token("benchmark", EVERYTHING, _TOKEN_LASTS) if locks is not None else "",
                redis_encrypted=redis.encrypted,
            )
        finally:
            for part in reversed(parts.values()):
                part.stop()
            redis.stop()
            broker.stop()


def _locks(module: Path, directory: Path) -> Locks:
    # Where a process of the command line would find it.
    sys.path.insert(0, str(module.parent))
    try:
        return Locks(directory, load_app(f"{module.stem}:app"))
    finally:
        sys.path.remove(str(module.parent))
