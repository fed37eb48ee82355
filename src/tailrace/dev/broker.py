"""A real Kafka broker on the loopback address, for development and tests."""

from __future__ import annotations

import base64
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from tailrace.dev.jars import ensure
from tailrace.dev.java import ensure_java
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.probe import kafka_answers
from tailrace.errors import PartDied

READY_IN = 90.0
# The quick compiler and the simple collector: half the CPU of a start, and enough for a broker of this size.
JAVA_OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Failures that a second try gets past: a port that was taken meanwhile, a predecessor that is still dying.
_PASSING = ("Address already in use", "Failed to acquire lock")


class Broker:
    """Kafka in KRaft mode, broker and controller in one process, which keeps its data in a directory.

    A second start finds the topics of the first, even after a crash. If you give no port, the object picks a free one
    and keeps it from start to start, because clients wait there. Several brokers can run at once, each in its own
    directory.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        log: Path | None = None,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = JAVA_OPTIONS,
        jars: Path | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port if port is not None else free_port()
        self.log = log if log is not None else self.directory / "broker.log"
        self._may_move = port is None
        self._controller_port = free_port()
        self._properties = dict(properties or {})
        self._java_options = tuple(java_options)
        self._jars = jars
        self._part: Part | None = None

    @property
    def address(self) -> str:
        """The bootstrap address, such as `127.0.0.1:9092`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def part(self) -> Part:
        """The running process."""
        if self._part is None:
            raise RuntimeError("start() comes first")
        return self._part

    def start(self) -> None:
        """Start and return when topics can be used. Raises PartDied or InstallError.

        1. A new data directory is formatted under another name and then renamed, so it is whole or absent.
        2. The broker starts and is ready when it answers a Metadata request with itself.
        """
        java, jars = ensure_java(), ensure("broker", self._jars)
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            str(java),
            *self._java_options,
            f"-Dlog4j2.configurationFile={files('tailrace.dev') / 'broker.log4j2.properties'}",
            "-Dlog4j2.disableJmx=true",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]
        if not (self.directory / "data").exists():
            self._format(command)
        for tries_left in (2, 1, 0):
            configuration = self._configure("server.properties", self.directory / "data")
            self._part = Part("kafka", [*command, "kafka.Kafka", str(configuration)], self.log)
            try:
                self._part.wait(lambda: kafka_answers(LOOPBACK, self.port), READY_IN)
                self._may_move = False
                return
            except BaseException as error:
                self._part.kill()
                if not (isinstance(error, PartDied) and any(end in str(error) for end in _PASSING) and tries_left):
                    raise
                self._controller_port = free_port()
                self.port = free_port() if self._may_move else self.port
                time.sleep(0.5)

    def stop(self) -> None:
        """Stop in order; does nothing if it does not run."""
        if self._part is not None:
            self._part.stop()

    def kill(self) -> None:
        """End with SIGKILL, as a crash would."""
        self.part.kill()

    def _format(self, command: list[str]) -> None:
        raw = self.directory / "formatting"
        shutil.rmtree(raw, ignore_errors=True)
        configuration = self._configure("formatting.properties", raw)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", "--config", str(configuration), "--cluster-id=" + cluster]
        part = Part("kafka format", [*command, *tool], self.log, may_finish=True)
        part.wait(lambda: not part.running, READY_IN)
        part.check()
        configuration.unlink()
        raw.rename(self.directory / "data")

    def _configure(self, name: str, data: Path) -> Path:
        own = {
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{LOOPBACK}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
            "log.dirs": str(data),
            **self._properties,
        }
        text = (files("tailrace.dev") / "broker.properties").read_text()
        file = self.directory / name
        # A backslash would start an escape.
        lines = [f"{key}={value}\n".replace("\\", "\\\\") for key, value in own.items()]
        file.write_text(text + "".join(lines))
        return file
