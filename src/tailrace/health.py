"""Health and metrics over HTTP for processes that have no web server of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tailrace.errors import SettingError


class HealthServer:
    """Serves `/health/live`, `/health/ready` and `/metrics` on loopback, from a thread of its own.

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
    ) -> None:
        class Answer(BaseHTTPRequestHandler):
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
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes get no log line."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
        except OSError as error:
            raise SettingError(f"--health-port {port}: {error.strerror}: choose another port") from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
