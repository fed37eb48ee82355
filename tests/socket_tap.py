"""A WebSocket client on a plain socket. It reads when told to, sees every frame, and can break every rule."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from running import PATIENCE

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@dataclass
class SocketTap:
    """One connection. `status` is that of the handshake, and `code` is the gateway's close code."""

    port: int
    path: str = "/ws"
    headers: Mapping[str, str] = field(default_factory=dict)
    subprotocol: str | None = None
    buffer: int | None = None
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self.code: int | None = None
        self.pings = 0
        self.ended = False
        self._raw = b""
        self._socket = socket.socket()
        self._socket.settimeout(PATIENCE)
        if self.buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        self._socket.connect(("127.0.0.1", self.port))
        if self.tls is not None:
            self._socket = self.tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {self.path} HTTP/1.1", "Host: test", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        if self.subprotocol is not None:
            lines.append(f"Sec-WebSocket-Protocol: {self.subprotocol}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._raw:
            self._receive()
            assert not self.ended, "the connection ended within the handshake"
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        self.status = int(status.split()[1])
        self.head = {name.lower(): value for name, _, value in (line.partition(": ") for line in fields)}

    def send(self, **message: Any) -> None:
        self.send_text(json.dumps(message))

    def subscribe(self, id: str, **what: Any) -> list[dict[str, Any]]:
        """Subscribe, and return the messages up to `ready`, without `subscribed`."""
        self.send(type="subscribe", id=id, **what)
        assert self.message() == {"type": "subscribed", "id": id}
        return self.messages("ready")

    def send_text(self, text: str) -> None:
        """Send a text frame."""
        self.send_frame(TEXT, text.encode())

    def send_frame(self, opcode: int, payload: bytes, *, last: bool = True) -> None:
        """Send a frame, masked as a client must."""
        size, mask = len(payload), os.urandom(4)
        first = (0x80 if last else 0) | opcode
        if size < 126:
            head = struct.pack("!BB", first, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", first, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", first, 0x80 | 127, size)
        repeated = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
        self.send_bytes(head + mask + masked)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are; a gateway that has hung up is no error."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.ended = True

    def message(self) -> dict[str, Any]:
        """The next message that is not `progress`; fails if the connection has ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.frame()
            assert found is not None, f"expected a message, got the end of the connection: {self.code}"
            assert time.monotonic() < deadline, "still waiting for a message"
            opcode, payload = found
            if opcode == PING:
                self.pings += 1
                self.send_frame(PONG, payload)
            elif opcode == TEXT:
                message: dict[str, Any] = json.loads(payload.decode())
                if message["type"] != "progress":
                    return message

    def messages(self, until: str) -> list[dict[str, Any]]:
        """The next messages, up to the first of this type."""
        found = [self.message()]
        while found[-1]["type"] != until:
            found.append(self.message())
        return found

    def rest(self) -> Iterable[dict[str, Any]]:
        """The messages that are left, up to the end of the connection."""
        while (found := self.frame()) is not None:
            if found[0] == TEXT:
                yield json.loads(found[1].decode())

    def frame(self) -> tuple[int, bytes] | None:
        """The next frame; None at the end. Then `code` is set if there was a closing handshake."""
        head = self._take(2)
        if head is None:
            return None
        assert head[0] & 0x70 == 0 and head[1] < 128, "nothing reserved is set, and a server does not mask"
        size = head[1]
        if size >= 126:
            more = self._take(2 if size == 126 else 8)
            if more is None:
                return None
            size = int.from_bytes(more, "big")
        payload = self._take(size)
        if payload is None:
            return None
        opcode = head[0] & 0x0F
        if opcode == CLOSE:
            self.code = struct.unpack("!H", payload[:2])[0] if payload else 1005
            self.send_frame(CLOSE, payload[:2])
            return None
        return opcode, payload

    def close(self) -> None:
        """Disconnect without a closing handshake."""
        self._socket.close()

    def _take(self, size: int) -> bytes | None:
        while len(self._raw) < size:
            if self.ended:
                return None
            self._receive()
        taken, self._raw = self._raw[:size], self._raw[size:]
        return taken

    def _receive(self) -> None:
        try:
            data = self._socket.recv(262144)
        except ConnectionError:
            data = b""
        self._raw += data
        self.ended = not data
