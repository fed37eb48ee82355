"""The gateway and its limit: two servers that carry the same rows."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fanout_figures import FEED, KEY, QUERY
from fanout_store import EVENTS, ROWS, STORES, WHERE, create_commands_topic
from load_client import Way
from tailrace.dev.certificates import Authority
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.errors import InstallError
from under_load import SSE, WEBSOCKET, connected, pinned, request, row, wait_answers

_SEND_LOOP = Path(__file__).parent / "peers" / "send_loop.c"
# Of a gateway that serves no queries.
_NO_KAFKA = "none"
# How clients ask for what they follow.
_PATHS = {
    KEY: f"/views/{ROWS}/{{key}}/events",
    QUERY: f"/views/{ROWS}/events?where={quote(WHERE, safe='{}')}",
    FEED: f"/feeds/{EVENTS}/{{key}}/events",
}
_SUBSCRIPTIONS: dict[str, dict[str, object]] = {
    KEY: {"view": ROWS, "keys": ["{key}"]},
    QUERY: {"view": ROWS, "where": WHERE},
    FEED: {"feed": EVENTS, "client": "{key}"},
}


@dataclass(frozen=True)
class ShownCertificate:
    """The files of a gateway that speaks TLS, and of the authority that its clients trust."""

    trusted: Path
    certificate: Path
    key: Path

    @classmethod
    def made(cls, directory: Path) -> ShownCertificate:
        """A new certificate of a new authority."""
        directory.mkdir()
        made = cls(directory / "ca.pem", directory / "certificate.pem", directory / "key.pem")
        authority = Authority.new()
        made.trusted.write_text(authority.certificate)
        authority.issue("gateway").write(made.certificate, made.key)
        return made


class Tailrace:
    """The gateway, and what its clients follow; rows are written to Redis as the materializer writes them.

    `kafka` is where queries are asked for; None where nobody follows one. With `shown` the gateway speaks TLS.
    """

    def __init__(
        self,
        redis: str,
        place: Path,
        keys: int,
        follow: str,
        kafka: str | None,
        shown: ShownCertificate | None = None,
    ) -> None:
        app = f"fanout-{place.name}"
        self._follow = follow
        self._trusted = None if shown is None else shown.trusted
        self._store = STORES[follow](redis, app, keys)
        if kafka is not None:
            create_commands_topic(kafka, app)
        self._port = free_port()
        services = ["--redis", redis, "--kafka", kafka or _NO_KAFKA]
        command = [sys.executable, "-m", "tailrace", "gateway", app, *services, "--port", str(self._port)]
        scheme = "http"
        if shown is not None:
            scheme = "https"
            command += ["--tls-cert", str(shown.certificate), "--tls-key", str(shown.key)]
        self.part = Part("gateway", pinned(command), place / "gateway.log")
        wait_answers(self.part, f"{scheme}://{LOOPBACK}:{self._port}/health/ready", self._trusted)

    def way(self, surface: str) -> Way:
        """By SSE, or subscribed to on a WebSocket."""
        address = f"{LOOPBACK}:{self._port}"
        if surface == SSE:
            return Way(address, request(_PATHS[self._follow], SSE), ready="event: ready", trusted=self._trusted)
        first = json.dumps({"type": "subscribe", "id": "a", **_SUBSCRIPTIONS[self._follow]})
        asked, ready = request("/ws", WEBSOCKET), '"type":"ready"'
        return Way(address, asked, ready=ready, first=first, websocket=True, trusted=self._trusted)

    def publish(self, numbers: Sequence[int]) -> None:
        """Write the rows to Redis."""
        self._store.publish(numbers)

    def stop(self) -> None:
        """End the gateway."""
        self.part.stop()


class SendLoop:
    """The limit: a loop over send(), which gets ready-made frames of the gateway's form from the publisher."""

    def __init__(self, program: Path, place: Path, keys: int, surface: str) -> None:
        self._keys, self._surface = keys, surface
        self._port, publisher = free_port(), free_port()
        self.part = Part(
            "send loop", pinned([str(program), str(self._port), str(publisher), surface]), place / "send-loop.log"
        )
        self._socket = connected(self.part, publisher)

    def way(self, surface: str) -> Way:
        """Any path that names the key."""
        return Way(f"{LOOPBACK}:{self._port}", request("/{key}/events", surface), websocket=surface == WEBSOCKET)

    def publish(self, numbers: Sequence[int]) -> None:
        """Send the frames of all rows at once."""
        at = time.time_ns()
        found = []
        for number in numbers:
            for key in range(self._keys):
                frame = self._frame(number, key, at)
                found.append(len(frame).to_bytes(4, sys.byteorder) + key.to_bytes(4, sys.byteorder) + frame)
        self._socket.sendall(b"".join(found))

    def stop(self) -> None:
        """End it."""
        self._socket.close()
        self.part.stop()

    def _frame(self, number: int, key: int, at: int) -> bytes:
        position, body = b"4be1a27c.1.0-%d" % number, row(number, key, at)
        if self._surface == SSE:
            text = b"event: row\nid: %b\ndata: %b\n\n" % (position, body)
            return b"%x\r\n%b\r\n" % (len(text), text)
        text = b'{"type":"row","view":"rows","key":"%d","position":"%b","row":%b}' % (key, position, body)
        # A text message of 126 to 65,535 bytes.
        return struct.pack("!BBH", 0x81, 126, len(text)) + text


def compile_send_loop(directory: Path) -> Path:
    """Compile the loop; raises InstallError where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise InstallError(f"expected cc, gcc or clang on the PATH, to compile {_SEND_LOOP}: install gcc")
    program = directory / "send_loop"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(_SEND_LOOP)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InstallError(f"{compiler} failed:\n{done.stderr}")
    return program
