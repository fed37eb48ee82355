"""A standalone cluster of Spark's with two workers, and what goes over the wire of this machine."""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

import pyspark

from running import PATIENCE
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port

_HOME = Path(pyspark.__file__).parent
_CORES = 6
_ALL_PACKETS = 3
_BUFFER = 64 * 1024 * 1024


class SparkCluster:
    """A master and two workers, each with a process and an address of its own."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self.directory = directory
        self._parts: list[Part] = []
        self._properties = directory / "cluster.conf"
        directory.mkdir(parents=True)
        self._properties.touch(mode=0o600)
        self._properties.write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when the workers are known to the master."""
        self._begin("master", "127.0.0.1", "--port", str(self._port))
        workers = [
            self._begin("worker", f"127.0.0.{number}", "--cores", str(_CORES), "--memory", "4g", self.master)
            for number in (2, 3)
        ]
        for worker in workers:
            worker.wait(partial(_is_registered, worker.log), PATIENCE)

    def stop(self) -> None:
        for part in reversed(self._parts):
            part.stop()

    def logs(self) -> str:
        """What master, workers and executors have written."""
        files = [part.log for part in self._parts]
        files += [file for file in self.directory.rglob("std*") if file.name in ("stdout", "stderr")]
        return "\n".join(file.read_text(errors="replace") for file in files)

    def _begin(self, what: str, host: str, *arguments: str) -> Part:
        command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}.{what.capitalize()}"]
        command += ["--host", host, "--webui-port", "0", "--properties-file", str(self._properties), *arguments]
        if what == "worker":
            command += ["--work-dir", str(self.directory / host)]
        environment = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
        }
        part = Part(
            f"{what} at {host}",
            command,
            self.directory / f"{what}-{host}.log",
            environment=environment,
        )
        self._parts.append(part)
        return part


def _is_registered(log: Path) -> bool:
    return b"Successfully registered" in log.read_bytes()


class Packets:
    """Which connections of this machine carry some bytes as they are. Needs the right to read packets."""

    def __init__(self, *looked_for: bytes) -> None:
        self._looked_for = looked_for
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PACKETS))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, 33, _BUFFER)  # SO_RCVBUFFORCE
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.1)
        self._stopping = Event()
        self._thread = Thread(target=self._read, daemon=True)
        # Packets by the pair of ends, each an address and a port; all of them, and those with the bytes.
        self.packets: Counter[tuple[tuple[str, int], tuple[str, int]]] = Counter()
        self.found: Counter[tuple[tuple[str, int], tuple[str, int]]] = Counter()

    def __enter__(self) -> Packets:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                self._look(self._socket.recv(1 << 17))

    def _look(self, frame: bytes) -> None:
        packet = frame[14:]
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return
        segment = packet[(packet[0] & 15) * 4 :]
        source, target = struct.unpack("!HH", segment[:4])
        ends = (socket.inet_ntoa(packet[12:16]), source), (socket.inet_ntoa(packet[16:20]), target)
        body = segment[(segment[12] >> 4) * 4 :]
        self.packets[ends] += 1
        if any(one in body for one in self._looked_for):
            self.found[ends] += 1
