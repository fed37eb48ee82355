"""A whole Tailrace on this machine for a benchmark: embedded services and the command line's processes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.dev.broker import Broker
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port
from tailrace.dev.probe import http_answers
from tailrace.dev.redis_server import RedisServer

PATIENCE = 180.0


@dataclass
class Stack:
    """The addresses of what runs, and its processes by name."""

    kafka: str
    redis: str
    gateway: str
    pipeline_metrics: str
    parts: dict[str, Part]


@contextmanager
def stack(module: Path, app: str, *, batch_interval: str) -> Iterator[Stack]:
    """Start everything for `module` (a file that declares `app`), yield, stop everything."""
    with tempfile.TemporaryDirectory(prefix="tailrace-benchmark-") as directory:
        place = Path(directory)
        broker, redis = Broker(place / "kafka"), RedisServer(place / "redis")
        parts: dict[str, Part] = {}
        try:
            broker.start()
            redis.start()
            ports = {name: free_port() for name in ("pipeline", "materializer", "gateway")}
            kafka, store = ["--kafka", broker.address], ["--redis", redis.url]
            health = {name: ["--health-port", str(port)] for name, port in ports.items()}
            own = ["--checkpoints", str(place / "checkpoints"), "--create-topics", "all"]
            commands = {
                "pipeline": [
                    f"{module.stem}:app",
                    *kafka,
                    *own,
                    *health["pipeline"],
                    "--batch-interval",
                    batch_interval,
                ],
                "materializer": [app, *kafka, *store, *health["materializer"]],
                "gateway": [app, *store, "--port", str(ports["gateway"])],
            }
            for name, arguments in commands.items():
                command = [sys.executable, "-m", "tailrace", name, *arguments]
                parts[name] = Part(name, command, place / f"{name}.log", cwd=module.parent)
            for name, part in parts.items():
                url = f"http://127.0.0.1:{ports[name]}/health/ready"
                part.wait(lambda url=url: http_answers(url), PATIENCE)  # type: ignore[misc]
            yield Stack(
                kafka=broker.address,
                redis=redis.url,
                gateway=f"http://127.0.0.1:{ports['gateway']}",
                pipeline_metrics=f"http://127.0.0.1:{ports['pipeline']}/metrics",
                parts=parts,
            )
        finally:
            for part in reversed(parts.values()):
                part.stop()
            redis.stop()
            broker.stop()
