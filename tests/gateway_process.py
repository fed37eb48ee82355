"""A gateway over a store that the test fills itself, and a client that sees every byte."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from running import PATIENCE, eventually
from socket_tap import SocketTap
from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogView, Column
from tailrace.contracts.partitions import partition_of
from tailrace.contracts.position import Position
from tailrace.contracts.record import Change
from tailrace.dev.ports import free_port
from tailrace.settings import TABLE
from tailrace.store.layout.keys import default_prefix
from tailrace.store.write.hand_overs import HandOvers, Served
from tailrace.store.write.writer import Applied, StoreWriter

# The state of a connection in /proc/net/tcp.
_ESTABLISHED = "01"
# Short enough to wait for. A test that must not get help from the sweep makes it long.
TIMING = {"keep_alive": 1.5, "sweep": 0.5, "ping": 0.5, "patience": 1.0, "poll": 0.1, "grace": 1.0}

# The gateway ends with the process that started it, however that ends (PR_SET_PDEATHSIG, SIGKILL).
_MAIN = """
import ctypes, json, sys
ctypes.CDLL(None).prctl(1, 9)
from tailrace.gateway.run import run
from tailrace.gateway.timing import Timing
from tailrace.logs import log_to_stderr
from tailrace.settings import Settings
app, values, timing = sys.argv[1:]
log_to_stderr("debug")
sys.exit(run(app, Settings(json.loads(values)), Timing(**json.loads(timing))))
"""


def view(name: str, key: str = "movie_id bigint", *, partitions: int = 2, generation: int = 1) -> CatalogView:
    """A view as the catalog has it; its key columns as in `"movie_id bigint, day string"`."""
    columns = tuple(Column(*column.split()) for column in key.split(", "))
    return CatalogView(name, name, f"topic-{name}", partitions, generation, columns, columns, {})


class Store:
    """Writes by hand what a pipeline and a materializer would have written."""

    def __init__(self, redis: str, app: str, *views: CatalogView) -> None:
        self.writer = StoreWriter(redis, default_prefix(app))
        self.app = app
        self.catalog = Catalog(app, {one.name: one for one in views})
        self.offsets: dict[tuple[str, int], int] = {}

    def publish_catalog(self) -> None:
        self.writer.put_catalog(APP_RECORD, self.catalog.encode())

    def replace(self, *views: CatalogView) -> None:
        """Write another catalog."""
        self.catalog = Catalog(self.app, {one.name: one for one in views})
        self.publish_catalog()

    def begin(self, target: int = -1) -> None:
        """Begin every partition. It is whole once it has reached the target."""
        for name, one in self.catalog.views.items():
            for partition in range(one.partitions):
                begun = self.writer.begin(name, partition, self.catalog.lineage(one), target, generation=one.generation)
                self.offsets[name, partition] = begun.offset

    def serve(self, name: str) -> None:
        """Hand every partition of a view over to the generation of the catalog."""
        one = self.catalog.views[name]
        for partition in range(one.partitions):
            lineage = self.catalog.lineage(one)
            served = HandOvers(self.writer).serve(name, partition, lineage, one.generation, -1)
            assert isinstance(served, Served), served

    def partition(self, name: str, key: str | bytes) -> int:
        return partition_of(key.encode() if isinstance(key, str) else key, self.catalog.views[name].partitions)

    def put(
        self,
        name: str,
        key: str | bytes,
        version: int,
        value: bytes | None,
        *,
        offset: int | None = None,
        generation: int = 1,
    ) -> int:
        """Apply one change, at the next offset unless told; returns its offset."""
        key = key.encode() if isinstance(key, str) else key
        partition = self.partition(name, key)
        before = self.offsets[name, partition]
        offset = before + 1 if offset is None else offset
        change = Change(key, value, generation, version, int(time.time() * 1000), offset)
        self._apply(name, partition, before, offset, [change])
        return offset

    def reach(self, name: str, partition: int, offset: int) -> None:
        """Move a partition's position on, past records of other keys."""
        self._apply(name, partition, self.offsets[name, partition], offset, [])

    def position(self, name: str, key: str, offset: int, *, generation: int = 1) -> str:
        """The position of a client that has seen a key's partition up to an offset."""
        lineage = self.catalog.lineage(self.catalog.views[name])
        return str(Position(lineage, generation, {self.partition(name, key): offset}))

    def _apply(self, name: str, partition: int, before: int, reached: int, changes: list[Change]) -> None:
        lineage = self.catalog.lineage(self.catalog.views[name])
        applied = self.writer.apply(name, partition, lineage, before, reached, changes)
        assert isinstance(applied, Applied), applied
        self.offsets[name, partition] = reached


def row(version: int, **more: Any) -> bytes:
    """A row's JSON that shows its version."""
    return json.dumps({"version": version, **more}, separators=(",", ":")).encode()


class GatewayProcess:
    """The real gateway as a process, on a port of its own.

    If its settings name a certificate, its clients speak TLS and trust the `ca.pem` beside it.
    """

    def __init__(
        self, directory: Path, redis: str, app: str, settings: Mapping[str, str] | None = None, /, **timing: float
    ) -> None:
        self.port = free_port()
        values = {setting.name: setting.default for setting in TABLE}
        values |= {"redis": redis, "host": "127.0.0.1", "port": str(self.port), "kafka": "none", **(settings or {})}
        shown = values["tls-cert"]
        self.tls = ssl.create_default_context(cafile=Path(shown).with_name("ca.pem")) if shown else None
        self.url = f"{'https' if shown else 'http'}://127.0.0.1:{self.port}"
        command = [sys.executable, "-c", _MAIN, app, json.dumps(values), json.dumps({**TIMING, **timing})]
        self._taps: list[Tap | SocketTap] = []
        self.log = directory / f"gateway-{self.port}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        eventually(self._answers, "the gateway answers")

    def get(self, path: str, **headers: str) -> httpx.Response:
        """A request; header names with underscores for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(self.url + path, headers=named, timeout=30, verify=self.tls or True)

    def wait_ready(self) -> None:
        """Wait until the gateway says that it is ready."""
        eventually(lambda: self.get("/health/ready").status_code == 200, "the gateway is ready")

    def metric(self, sample: str) -> float:
        """One sample of the metrics page; 0 if it is not there."""
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found is not None else 0.0

    def follow(self, path: str, **options: Any) -> Tap:
        """A client that follows a path. It is closed with the process at the latest."""
        tap = Tap(self.port, path, tls=self.tls, **options)
        self._taps.append(tap)
        return tap

    def socket(self, path: str = "/ws", **options: Any) -> SocketTap:
        """A client on a WebSocket. It is closed with the process at the latest."""
        tap = SocketTap(self.port, path, tls=self.tls, **options)
        self._taps.append(tap)
        return tap

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()

    def kill(self) -> None:
        """Send SIGKILL, and disconnect every client."""
        self.process.kill()
        self.process.wait()
        for tap in self._taps:
            tap.close()

    def close(self) -> None:
        """Stop, and disconnect every client; fails if the gateway did not end well."""
        code = self.stop()
        for tap in self._taps:
            tap.close()
        log = self.log.read_text()
        assert code == 0 and "Traceback" not in log, log

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/health/live").status_code == 200
        except httpx.HTTPError:
            return False


@dataclass(frozen=True)
class Frame:
    """One SSE frame."""

    event: str
    id: str | None
    data: Any


@dataclass
class Tap:
    """A client on a plain socket. It reads when told to, and sees chunks, comments and the end of the body."""

    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    version: str = "1.1"
    buffer: int | None = None
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self.comments = 0
        self.retry: str | None = None
        self.last_id: str | None = None  # of a block without an event
        self.ended = False
        self._raw = b""
        self._body = b""
        self._socket = socket.socket()
        self._socket.settimeout(30)
        if self.buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        self._socket.connect(("127.0.0.1", self.port))
        if self.tls is not None:
            self._socket = self.tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        lines = [f"GET {self.path} HTTP/{self.version}", "Host: test", *(f"{k}: {v}" for k, v in self.headers.items())]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._raw:
            self._receive()
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        self.status = int(status.split()[1])
        self.head = {name.lower(): value for name, _, value in (line.partition(": ") for line in fields)}
        self._chunked = self.head.get("transfer-encoding") == "chunked"

    @property
    def held(self) -> bool:
        """Whether the gateway's side of the connection is open, whatever this client has read."""
        ends = f"{self.port:04X}", f"{self._socket.getsockname()[1]:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            local, remote, state = line.split()[1:4]
            if (local.partition(":")[2], remote.partition(":")[2]) == ends:
                return state == _ESTABLISHED
        return False

    def frame(self) -> Frame:
        """The next frame that is not `progress`."""
        while (found := self.any_frame()).event == "progress":
            pass
        return found

    def any_frame(self) -> Frame:
        """The next frame; fails if the stream has ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            block = self._block()
            assert block is not None, "expected a frame, got the end of the stream"
            assert time.monotonic() < deadline, "still waiting for a frame, got keep-alives only"
            lines = block.split("\n")
            if lines == [":"]:
                self.comments += 1
                continue
            fields = dict(line.split(": ", 1) for line in lines)
            if "event" not in fields:
                self.retry = fields.get("retry", self.retry)
                self.last_id = fields.get("id", self.last_id)
                continue
            return Frame(fields["event"], fields.get("id"), json.loads(fields["data"]))

    def frames(self, until: str) -> list[Frame]:
        """The next frames, up to the first with this event."""
        found = [self.frame()]
        while found[-1].event != until:
            found.append(self.frame())
        return found

    def comment(self) -> None:
        """Wait for a keep-alive; fails if a frame comes first."""
        block = self._block()
        assert block == ":", f"expected a keep-alive, got {block!r}"
        self.comments += 1

    def idle(self) -> bool:
        """Whether a keep-alive comes before any frame; `retry` may."""
        while (block := self._block()) is not None and block.startswith("retry"):
            pass
        return block == ":"

    def json(self) -> Any:
        """The body of an answer that is not a stream."""
        while len(self._raw) < int(self.head["content-length"]):
            self._receive()
        return json.loads(self._raw)

    def rest(self) -> Iterable[str]:
        """What is left of the stream, up to its end."""
        while (block := self._block()) is not None:
            yield block

    def close(self) -> None:
        self._socket.close()

    def _block(self) -> str | None:
        deadline = time.monotonic() + PATIENCE
        while b"\n\n" not in self._body:
            if self.ended:
                return None
            self._fill()
            assert time.monotonic() < deadline, "still waiting for a frame"
        block, _, self._body = self._body.partition(b"\n\n")
        return block.decode()

    def _fill(self) -> None:
        if not self._chunked:
            while not self._raw and not self.ended:
                self._receive()
            self._body, self._raw = self._body + self._raw, b""
            return
        while b"\r\n" not in self._raw:
            self._receive()
            assert not self.ended, "the body ended without its last chunk"
        size, _, self._raw = self._raw.partition(b"\r\n")
        length = int(size, 16)
        while len(self._raw) < length + 2:
            assert not self.ended, "the connection was cut off within a chunk"
            self._receive()
        chunk, end, self._raw = self._raw[:length], self._raw[length : length + 2], self._raw[length + 2 :]
        assert end == b"\r\n", "a chunk has the length it names"
        self._body += chunk
        self.ended = length == 0

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        self._raw += data
        if not data:
            self.ended = True
