"""TLS and credentials in front of a real schema registry, whose program can't ask for them itself."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import Any

import httpx

from registry_server import RegistryServer
from tailrace.dev.certificates import Issued
from tailrace.dev.ports import LOOPBACK


def server_context(directory: Path, shown: Issued, *, trusts: str = "") -> ssl.SSLContext:
    """How a server does TLS that shows a certificate; with `trusts`, it wants one that this authority has signed."""
    file = directory / "server.pem"
    shown.write(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if trusts:
        context.load_verify_locations(cadata=trusts)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class RegistryFront(ThreadingHTTPServer):
    """Passes requests on to a registry if they are allowed. `context` and `allowed` may be replaced at any time.

    allowed: the values of Authorization that it lets in; everyone if it is None.
    moved_to: a URL that it sends whom it lets in to, instead.
    """

    daemon_threads = True

    def __init__(self, registry: RegistryServer) -> None:
        super().__init__((LOOPBACK, 0), _Request)
        self.registry = registry
        self.context: ssl.SSLContext | None = None
        self.allowed: Collection[str] | None = None
        self.moved_to: str | None = None
        self.sent: list[str | None] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def path(self) -> str:
        """The path of the registry's API."""
        return self.registry.url.partition(f":{self.registry.port}")[2]

    def url(self, host: str = LOOPBACK, login: str = "") -> str:
        """Its URL, with a user and password if one is given."""
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://{login}{'@' if login else ''}{host}:{self.server_address[1]}{self.path}"

    def get_request(self) -> tuple[socket, Any]:
        link, address = super().get_request()
        if self.context is not None:
            # The thread of the request does the handshake.
            link = self.context.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
        return link, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet: clients that are refused are what tests are about."""

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: RegistryFront

    def do_GET(self) -> None:
        front, given = self.server, self.headers["Authorization"]
        front.sent.append(given)
        if front.allowed is not None and given not in front.allowed:
            status, body = 401, b'{"error_code": 401, "message": "unauthorized"}'
        elif front.moved_to is not None:
            self.send_response(307)
            self.send_header("Location", front.moved_to + self.path.removeprefix(front.path))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        else:
            answer = httpx.get(f"http://{LOOPBACK}:{front.registry.port}{self.path}")
            status, body = answer.status_code, answer.content
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
