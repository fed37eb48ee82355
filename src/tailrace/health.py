"""Health and metrics over HTTP for processes that have no web server of their own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tailrace.errors import SettingError


class HealthServer:
    """Serves `/health/live`, `/health/ready` and `/metrics` from a thread of its own, by default on loopback.

    `reasons` is called per request and lists why the process is not ready; an empty list means ready. `degraded` lists
    which views may be stale, and why, each as `{"view": …, "reason": …}`: the process is ready nevertheless. Both are
    called on a thread of the server.
    """

    def __init__(
        self,
        port: int,
        registry: CollectorRegistry,
        reasons: Callable[[], Sequence[str]],
        *,
        degraded: Callable[[], Sequence[Mapping[str, str]]] = tuple,
        host: str = "127.0.0.1",
    ) -> None:
        class Answer(BaseHTTPRequestHandler):
            # A client that sends no request holds a thread for so many seconds.
            timeout = 10
            server_version, sys_version = "tailrace", ""

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._send(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif self.path == "/health/live":
                    self._send(200, "application/json", b'{"live":true}')
                elif self.path == "/health/ready":
                    found = list(reasons())
                    body = {"ready": not found, "reasons": found, "degraded": list(degraded())}
                    self._send(503 if found else 200, "application/json", json.dumps(body).encode())
                else:
                    self._send(404, "application/json", b'{"error":"expected /health/live, /health/ready or /metrics"}')

            def _send(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes get no log line."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def server_bind(self) -> None:
                # The library would ask the DNS for a name that nobody needs.
                TCPServer.server_bind(self)

        try:
            self._server = Server((host, port), Answer)
        except socket.gaierror as error:
            raise SettingError(
                f"--health-host: expected an address of this machine, got {host!r}: {error.strerror}; 127.0.0.1 is for "
                "this machine, 0.0.0.0 for all"
            ) from None
        except OSError as error:
            raise SettingError(
                f"--health-port: expected a free port on {host}, got {port}: {error.strerror}; choose another port, or "
                "another --health-host"
            ) from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
