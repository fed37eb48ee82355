"""Malicious clients on plain sockets: bounded in number, and only against the test's own gateway."""

from __future__ import annotations

import json
import socket
import ssl
import time
from typing import Any

from running import PATIENCE


class RawClient:
    """A connection that sends any bytes, reads only when told to, and sees the end."""

    def __init__(
        self, port: int, first: bytes = b"", *, buffer: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.raw = b""
        self.ended = False
        self._socket = socket.socket()
        self._socket.settimeout(PATIENCE)
        if buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._socket.connect(("127.0.0.1", port))
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self.send(first)

    @property
    def version(self) -> str | None:
        """The version of TLS that is spoken."""
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.version()

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the gateway has shown."""
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.getpeercert(binary_form=True)

    def send(self, data: bytes) -> bool:
        """Send bytes; False if the gateway has hung up."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def receive(self) -> bytes:
        """The next bytes; none at the end."""
        try:
            data = self._socket.recv(262144)
        except ConnectionError:
            data = b""
        self.raw += data
        self.ended = self.ended or not data
        return data

    def answer(self) -> tuple[int, dict[str, str], Any]:
        """The status, the headers and the body, as JSON, of the next answer."""
        while b"\r\n\r\n" not in self.raw:
            assert self.receive(), f"expected an answer, got the end after {self.raw!r}"
        head, _, self.raw = self.raw.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", "0"))
        while len(self.raw) < size:
            assert self.receive(), "expected the whole body, got the end"
        body, self.raw = self.raw[:size], self.raw[size:]
        return int(status.split()[1]), headers, json.loads(body) if body else None

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        deadline = time.monotonic() + PATIENCE
        while self.receive():
            assert time.monotonic() < deadline, "the connection does not end"
        return self.raw

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        self._socket.close()


def request(method: str, path: str, *lines: str) -> bytes:
    """A request without a body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", *lines, "", ""]).encode()
