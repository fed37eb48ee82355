"""Many clients at once: the load client in Go, which counts the rows that arrive and measures their delay."""

from __future__ import annotations

import json
import mmap
import os
import select
import shutil
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import InstallError, PartDied

SOURCE = Path(__file__).parent / "peers" / "fanout"
PATIENCE = 90.0

# Per bucket, the largest delay in it in ns, and how many fell into it.
Buckets = list[tuple[int, int]]


@dataclass(frozen=True)
class Way:
    """How a client gets to its rows: a request, then on a WebSocket a message; `{key}` stands for the key's number.

    `ready` is what a connection that gets every row from now on has been sent; where it is empty, the head is. If there
    is `trusted`, the server speaks TLS, with a certificate that this authority has signed.
    """

    address: str
    request: str
    ready: str = ""
    first: str = ""
    websocket: bool = False
    trusted: Path | None = None


@dataclass(frozen=True)
class Counted:
    """What arrived between `begin` and `end`: rows, versions that were left out, connections lost, delays."""

    rows: int
    skipped: int
    lost: int
    delays: Buckets


def build(directory: Path) -> Path:
    """Compile the load client; raises InstallError where there is no Go."""
    if shutil.which("go") is None:
        raise InstallError(f"expected go on the PATH, to compile {SOURCE}: install Go 1.24 or newer")
    program = directory / "fanout-client"
    command = ["go", "build", "-o", str(program), "."]
    done = subprocess.run(
        command,
        cwd=SOURCE,
        env={**os.environ, "GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise InstallError(f"go build failed:\n{done.stderr}")
    return program


class LoadClient:
    """So many connections over so many keys, in one process; connection i follows key i % keys."""

    def __init__(self, program: Path, way: Way, connections: int, keys: int, place: Path) -> None:
        self.connections = connections
        place.mkdir(parents=True, exist_ok=True)
        request, shared = place / "request", place / "shared"
        request.write_text(way.request)
        shared.write_bytes(bytes(8))
        with shared.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)
        flags = {
            "address": way.address,
            "connections": connections,
            "keys": keys,
            "request": request,
            "ready": way.ready,
            "first": way.first,
            "websocket": str(way.websocket).lower(),
            "shared": shared,
            "trust": way.trusted or "",
        }
        self._errors = place / "client.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(program), *(f"-{name}={value}" for name, value in flags.items())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "GOMAXPROCS": "1"},
            )

    def wait_connected(self) -> None:
        """Return when every connection gets its rows."""
        self._expect("connected")

    def begin(self, *, timed: bool = False) -> None:
        """Count from here on."""
        self._say("timed" if timed else "begin")
        self._expect("begun")

    def end(self) -> Counted:
        """What has arrived since `begin`."""
        self._say("end")
        found: dict[str, Any] = json.loads(self._line())
        delays = [(int(top), int(count)) for top, count in found["delays"]]
        return Counted(found["rows"], found["skipped"], found["lost"], delays)

    def progress(self) -> float:
        """The number of the last row that arrived, averaged over all connections."""
        return float(struct.unpack("=Q", self._shared[:])[0]) / self.connections

    def cpu_seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Disconnect everybody."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._shared.close()

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        if (line := self._line()) != word:
            raise PartDied(f"the load client said {line!r}, not {word!r}")

    def _line(self) -> str:
        assert self._process.stdout is not None  # noqa: S101
        deadline = time.monotonic() + PATIENCE
        # Lines are answers to commands, one at a time: nothing waits in the reader's buffer.
        readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = self._process.stdout.readline() if readable else b""
        if not line:
            raise PartDied(f"the load client said nothing: {self._errors.read_text(errors='replace').strip()}")
        return line.decode().strip()
