"""A real Kafka broker on the loopback address, for development and tests."""

from __future__ import annotations

import base64
import os
import shutil
import ssl
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class BrokerLocks:
    """Files with which a broker lets in only whom it knows: PEM, each certificate with its key in front of it.

    Clients come by TLS, log in by SCRAM-SHA-512, and may do what ACLs allow. Whoever shows `administrator` at the
    listener for administration may do everything; so may the broker, which shows `identity` there and to its
    controller. Their names are the last two.
    """

    authority: Path
    identity: Path
    administrator: Path
    broker_name: str
    administrator_name: str

    def properties(self) -> dict[str, str]:
        """What the broker is told, except addresses."""
        return {
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,ADMIN:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "ADMIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "listener.name.admin.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:CN={self.broker_name};User:CN={self.administrator_name}",
        }

    def administer(self) -> ssl.SSLContext:
        """TLS to the listener for administration."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.administrator)
        return context


class Broker:
    """Kafka in KRaft mode, broker and controller in one process, which keeps its data in a directory.

    A second start finds the topics of the first, even after a crash. If you give no port, the object picks a free one
    and keeps it from start to start, because clients wait there. Several brokers can run at once, each in its own
    directory.

    With locks it has a second port, `admin_address`, for administration.
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
        locks: BrokerLocks | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port if port is not None else free_port()
        self.log = log if log is not None else self.directory / "broker.log"
        self._may_move = port is None
        self._controller_port, self._admin_port = free_port(), free_port()
        self._locks = locks
        self._properties = dict(properties or {})
        self._java_options = tuple(java_options)
        self._jars = jars
        self._part: Part | None = None

    @property
    def address(self) -> str:
        """The bootstrap address, such as `127.0.0.1:9092`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def admin_address(self) -> str:
        """The address for administration; with locks, at a port that only administrators are let in at."""
        return f"{LOOPBACK}:{self._admin_port}" if self._locks is not None else self.address

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
                self._part.wait(self._answers, READY_IN)
                self._may_move = False
                return
            except BaseException as error:
                self._part.kill()
                if not (isinstance(error, PartDied) and any(end in str(error) for end in _PASSING) and tries_left):
                    raise
                self._controller_port, self._admin_port = free_port(), free_port()
                self.port = free_port() if self._may_move else self.port
                time.sleep(0.5)

    def stop(self) -> None:
        """Stop in order; does nothing if it does not run."""
        if self._part is not None:
            self._part.stop()

    def kill(self) -> None:
        """End with SIGKILL, as a crash would."""
        self.part.kill()

    def _answers(self) -> bool:
        if self._locks is None:
            return kafka_answers(LOOPBACK, self.port)
        return kafka_answers(LOOPBACK, self._admin_port, self._locks.administer())

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
        clients = f"PLAINTEXT://{self.address}"
        if self._locks is not None:
            clients = f"SASL_SSL://{self.address},ADMIN://{self.admin_address}"
        own = {
            "listeners": f"{clients},CONTROLLER://{LOOPBACK}:{self._controller_port}",
            "advertised.listeners": clients,
            "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
            "log.dirs": str(data),
            **(self._locks.properties() if self._locks is not None else {}),
            **self._properties,
        }
        text = (files("tailrace.dev") / "broker.properties").read_text()
        file = self.directory / name
        # A backslash would start an escape.
        lines = [f"{key}={value}\n".replace("\\", "\\\\") for key, value in own.items()]
        file.write_text(text + "".join(lines))
        return file
