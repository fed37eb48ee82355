"""nginx with its module Nchan, which publishes to Server-Sent Events and WebSockets."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from load_client import Way
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.errors import InstallError
from under_load import SSE, WEBSOCKET, connected, pinned, request, row

_MODULE = "usr/lib/nginx/modules/ngx_nchan_module.so"
# A subscriber is behind by less than what is kept, so that it misses nothing.
_CONFIG = """
daemon off;
worker_processes 1;
load_module {module};
pid {place}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    nchan_shared_memory_size 512M;
    server {{
        listen {address}:{port} backlog=2048;
        location ~ ^/rows/(\\d+)$ {{
            nchan_subscriber eventsource websocket;
            nchan_subscriber_first_message newest;
            nchan_subscriber_timeout 0;
            nchan_channel_id $1;
        }}
        location ~ ^/publish/(\\d+)$ {{
            nchan_publisher websocket;
            nchan_message_buffer_length 1000;
            nchan_channel_id $1;
        }}
    }}
}}
"""


@dataclass(frozen=True)
class Nginx:
    """An nginx and its Nchan module."""

    program: Path
    module: Path

    def command(self, place: Path, port: int) -> list[str]:
        """Serve from a directory, on a port."""
        place.mkdir(parents=True, exist_ok=True)
        config = place / "nginx.conf"
        config.write_text(_CONFIG.format(module=self.module, place=place, address=LOOPBACK, port=port))
        return [str(self.program), "-p", str(place), "-c", str(config), "-e", "stderr"]


def find() -> Nginx:
    """The nginx on the PATH, with the module that was installed with it; raises InstallError where it lacks either."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is not None and (module := Path(found).resolve().parents[2] / _MODULE).exists():
        return Nginx(Path(found), module)
    raise InstallError("expected nginx and its Nchan module: install nginx and libnginx-mod-nchan")


def publisher_to(port: int, key: int) -> socket.socket:
    """A WebSocket to publish to a key's channel."""
    found = socket.create_connection((LOOPBACK, port), timeout=10)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lines = [
        f"GET /publish/{key} HTTP/1.1",
        f"Host: {LOOPBACK}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ]
    found.sendall("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        got = found.recv(4096)
        answer += got
        if not got:
            break
    if not answer.startswith(b"HTTP/1.1 101"):
        raise InstallError(f"expected a WebSocket of Nchan, got {answer[:200]!r}")
    return found


def masked(payload: bytes) -> bytes:
    """A text message of a client; its mask of zeroes changes nothing."""
    size = len(payload)
    head = bytes((0x81, 0x80 | size)) if size < 126 else bytes((0x81, 0xFE)) + size.to_bytes(2)
    return head + bytes(4) + payload


def nchan_way(port: int, surface: str) -> Way:
    """How clients get rows: it tells surfaces apart by their headers."""
    asked = request("/rows/{key}", surface)
    if surface == SSE:
        asked = asked.replace("\r\n\r\n", "\r\nAccept: text/event-stream\r\n\r\n")
    return Way(f"{LOOPBACK}:{port}", asked, websocket=surface == WEBSOCKET)


class Nchan:
    """nginx with Nchan: its memory store, one worker; rows are published on one WebSocket per key."""

    def __init__(self, tools: Nginx, place: Path, keys: int) -> None:
        self._keys = keys
        self._port = free_port()
        self.part = Part("nchan", pinned(tools.command(place, self._port)), place / "nchan.log")
        connected(self.part, self._port).close()
        self._sockets = [publisher_to(self._port, key) for key in range(keys)]

    def way(self, surface: str) -> Way:
        """A channel per key."""
        return nchan_way(self._port, surface)

    def publish(self, numbers: Sequence[int]) -> None:
        """A message per row."""
        at = time.time_ns()
        for key, publisher in enumerate(self._sockets):
            publisher.sendall(b"".join(masked(row(number, key, at)) for number in numbers))
            with suppress(BlockingIOError):
                # How many have got it: nobody here needs to know.
                publisher.recv(1 << 20, socket.MSG_DONTWAIT)

    def stop(self) -> None:
        """End it."""
        for publisher in self._sockets:
            publisher.close()
        self.part.stop()
