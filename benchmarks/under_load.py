"""A server under load: a core of its own, the rows it is to carry, what it takes of processor and memory."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import httpx

from load_client import Way
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK
from tailrace.errors import InstallError

SSE, WEBSOCKET = "sse", "websocket"
SERVER_CORE, OTHER_CORE = 0, 1
ROW_BYTES = 150
READY_IN = 60.0
_UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def row(number: int, key: int, at: int) -> bytes:
    """A row of 150 bytes that holds its number and the time in ns."""
    text = b'{"n":%d,"t":%d,"key":%d,"text":"' % (number, at, key)
    return text + b"x" * (ROW_BYTES - len(text) - 2) + b'"}'


class Server(Protocol):
    """A server under load. `part` is its process on the server's core."""

    part: Part

    def way(self, surface: str) -> Way:
        """How clients get rows from it."""

    def publish(self, numbers: Sequence[int]) -> None:
        """Give every key these rows, in order."""

    def stop(self) -> None:
        """End it."""


def allow_descriptors(connections: int) -> None:
    """Let this process and all that it starts have so many connections; raises InstallError where it may not."""
    needed = connections + 1000
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        raise InstallError(f"expected {needed} open files to be allowed, got {most}: raise `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))


def request(path: str, surface: str) -> str:
    """The request that opens a stream."""
    return f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\n{_UPGRADE if surface == WEBSOCKET else ''}\r\n"


def cpu_seconds(part: Part) -> float:
    """Processor time of a part's process group so far."""
    total = 0.0
    for process, _ in _group(part):
        with suppress(OSError):
            # The clock of another process, as clock_getcpuclockid(3) names it: /proc counts in hundredths of a second.
            total += time.clock_gettime(~process << 3 | 2)
    return total


def resident_kb(part: Part) -> int:
    """Memory of a part's process group that is resident, in KB."""
    return sum(int(fields[21]) * (os.sysconf("SC_PAGE_SIZE") // 1024) for _, fields in _group(part))


def _group(part: Part) -> Iterator[tuple[int, list[str]]]:
    """The processes of a part's group: their ids, and the fields of /proc/PID/stat after the name."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == part.pid:
                yield int(stat.parent.name), fields


def pinned(command: list[str]) -> list[str]:
    """The command on the server's core."""
    return ["taskset", "-c", str(SERVER_CORE), *command]


def wait_answers(part: Part, url: str, trusted: Path | None = None) -> None:
    """Return when a URL is answered with 200. `trusted` is the authority by which the server has a certificate."""
    verify = True if trusted is None else ssl.create_default_context(cafile=trusted)

    def answers() -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(url, verify=verify).status_code == 200
        return False

    _wait(part, answers)


def connected(part: Part, port: int) -> socket.socket:
    """A connection to a port, as soon as it is listened on."""
    found: list[socket.socket] = []

    def answers() -> bool:
        with suppress(OSError):
            found.append(socket.create_connection((LOOPBACK, port), timeout=10))
        return bool(found)

    _wait(part, answers)
    found[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found[0]


def _wait(part: Part, answers: Callable[[], bool]) -> None:
    try:
        part.wait(answers, READY_IN)
    except BaseException:
        # One that hangs would share the core with the next contender.
        part.stop()
        raise
