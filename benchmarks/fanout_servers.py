"""The gateway and its limit: two servers that carry the same rows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from load_client import Way
from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogView, Column
from tailrace.contracts.record import Change
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.redis_server import RedisServer
from tailrace.errors import InstallError, PartDied
from tailrace.gateway.frames.surface import chunk, message
from tailrace.store.layout.keys import default_prefix
from tailrace.store.layout.packed import pack
from tailrace.store.write.writer import Applied, Parcel, Writer
from under_load import SSE, WEBSOCKET, connected, pinned, request, row, wait_answers

_VIEW, _TOPIC = "rows", "fanout"
_SEND_LOOP = Path(__file__).parent / "peers" / "send_loop.c"


class Tailrace:
    """The gateway; rows are written to Redis as the materializer writes them, a script call per row and partition."""

    def __init__(self, redis: RedisServer, place: Path, keys: int) -> None:
        self._keys = keys
        app = f"fanout-{place.name}"
        column = (Column("key", "bigint"),)
        view = CatalogView(_VIEW, _VIEW, _TOPIC, 1, 1, column, column, {})
        catalog = Catalog(app, {_VIEW: view})
        self._lineage = catalog.lineage(view)
        self._writer = Writer(redis.url, default_prefix(app))
        self._writer.put_catalog(APP_RECORD, catalog.encode())
        self._offset = self._writer.begin(_VIEW, 0, self._lineage, -1, generation=1).offset
        self._port = free_port()
        command = [sys.executable, "-m", "tailrace", "gateway", app, "--redis", redis.url, "--port", str(self._port)]
        self.part = Part("gateway", pinned(command), place / "gateway.log")
        wait_answers(self.part, f"http://{LOOPBACK}:{self._port}/health/ready")

    def way(self, surface: str) -> Way:
        """A key by SSE, or subscribed to on a WebSocket."""
        address = f"{LOOPBACK}:{self._port}"
        if surface == SSE:
            return Way(address, request(f"/views/{_VIEW}/{{key}}/events", SSE), ready="event: ready")
        first = json.dumps({"type": "subscribe", "id": "a", "view": _VIEW, "keys": ["{key}"]})
        return Way(address, request("/ws", WEBSOCKET), ready='"type":"ready"', first=first, websocket=True)

    def publish(self, numbers: Sequence[int]) -> None:
        """Write a batch per number: a batch holds a key once."""
        parcels = []
        at = time.time_ns()
        for number in numbers:
            first = self._offset + 1
            changes = [
                Change(b"%d" % key, row(number, key, at), 1, number, at // 1_000_000, first + key)
                for key in range(self._keys)
            ]
            reached = self._offset + self._keys
            parcels.append(Parcel(_VIEW, 0, self._lineage, self._offset, reached, pack(changes)))
            self._offset = reached
        for applied in self._writer.apply_all(parcels):
            if not isinstance(applied, Applied):
                raise PartDied(f"expected Redis to take the rows, got {applied}")

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
        if self._surface == SSE:
            return chunk(b"event: row\nid: 4be1a27c.1.0-%d\ndata: %b\n\n" % (number, row(number, key, at)))
        position = b'"position":"4be1a27c.1.0-%d"' % number
        return message(b'{"type":"row","view":"rows","key":"%d",%b,"row":%b}' % (key, position, row(number, key, at)))


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
