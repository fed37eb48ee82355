"""The inner port: metrics and what health knows are served there, and there alone, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from access_tokens import bearer, settings, token
from attacking import RawClient
from gateway_process import GatewayProcess, Store, row
from running import eventually
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.redis_server import RedisServer
from tls_proxy import certificates

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


class Doors:
    """A gateway that asks clients for TLS and tokens, with an inner port."""

    def __init__(self, directory: Path, redis: str, app: str, **timing: float) -> None:
        _, certificate, key = certificates(directory)
        self.port = free_port()
        given = settings(directory, tls_cert=str(certificate), tls_key=str(key), admin_port=str(self.port))
        self.gateway = GatewayProcess(directory, redis, app, given, **timing)
        self.url = f"http://{LOOPBACK}:{self.port}"
        eventually(lambda: self.inside("/health/ready").status_code == 200, "the gateway is ready")

    def inside(self, path: str, method: str = "GET", **headers: str) -> httpx.Response:
        return httpx.request(method, self.url + path, headers=headers, timeout=30)

    def outside(self, path: str) -> httpx.Response:
        return self.gateway.get(path, **bearer(token()))


@pytest.fixture(scope="module")
def doors(redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    store.put("averages", "1", 1, row(1))
    doors = Doors(tmp_path_factory.mktemp("doors"), redis_server.url, store.catalog.app, request=1.0, idle=1.0)
    yield doors
    doors.gateway.close()


def test_metrics_and_what_health_knows_are_inside_and_need_no_token(doors: Doors) -> None:
    assert "tailrace_gateway_sockets" in doors.inside("/metrics").text
    ready = doors.inside("/health/ready").json()
    assert ready["ready"] and set(ready["views"]) == {"averages", "names"} and ready["certificate"]["problems"] == []
    assert doors.inside("/health/live").json() == {"live": True}
    assert doors.inside("/health/live").headers["x-content-type-options"] == "nosniff"


def test_clients_learn_that_the_gateway_lives_and_is_ready_and_nothing_more(doors: Doors) -> None:
    assert doors.outside("/views/averages/1").json() == {"version": 1}
    for path, body in (("/health/live", {"live": True}), ("/health/ready", {"ready": True})):
        found = doors.gateway.get(path)
        assert (found.status_code, found.json()) == (200, body)
    gone = doors.outside("/metrics")
    assert (gone.status_code, gone.json()["error"]) == (404, "unknown path")
    assert doors.gateway.get("/metrics").status_code == 401
    paths = doors.outside("/openapi.json").json()["paths"]
    assert "/metrics" not in paths and "views" not in str(paths["/health/ready"]["get"]["responses"])


def test_everything_else_is_outside(doors: Doors, store: Store) -> None:
    paths = [*doors.outside("/openapi.json").json()["paths"], "/openapi.json", "/asyncapi.json", "/docs", "/", "/ws"]
    others = [path.replace("{key}", "1") for path in paths if not path.startswith("/health/")]
    assert "/views/averages/1" in others and "/views/averages/1/events" in others and len(others) > 10
    for path in others:
        for method in ("GET", "POST"):
            found = doors.inside(path, method, **bearer(token()))
            assert (found.status_code, found.json()["error"]) == (404, "unknown path"), path
            assert found.json()["expected"] == "/health/live, /health/ready or /metrics"
    for path in ("/ws", "/metrics"):
        assert doors.inside(path, **UPGRADE).status_code == (404 if path == "/ws" else 200)
    assert doors.inside("/metrics", "POST").status_code == 405
    # Nobody's requests are a reason for lines in the log.
    assert "upgrade" not in doors.gateway.log.read_text().lower()


def test_a_request_without_end_is_ended_inside_too(doors: Doors) -> None:
    status, _, body = RawClient(doors.port, b"GET /metrics HTTP/1.1\r\nX-Slow: ").answer()
    assert (status, body["error"]) == (408, "request too slow")
    assert RawClient(doors.port).rest() == b""


def test_a_drain_is_seen_inside(redis_server: RedisServer, store: Store, tmp_path: Path) -> None:
    doors = Doors(tmp_path, redis_server.url, store.catalog.app, grace=60.0)
    gateway = doors.gateway
    try:
        # More than the system keeps for a client that reads nothing: the drain waits for it.
        store.put("averages", "drained", 1, row(1, part="x" * 12_000_000))
        slow = gateway.follow("/views/averages/drained/events", headers=bearer(token()), buffer=4096)
        sample = 'tailrace_gateway_frames_total{kind="row",surface="sse"} 1.0'
        eventually(lambda: sample in doors.inside("/metrics").text, "the row is written", 60)
        gateway.process.terminate()

        def draining() -> bool:
            found = doors.inside("/health/ready")
            return found.status_code == 503 and "the gateway shuts down" in found.json()["reasons"]

        eventually(draining, "the inner port says that the gateway shuts down", 60)
        with pytest.raises(httpx.ConnectError):
            gateway.get("/health/live")
        slow.close()
        assert gateway.process.wait(30) == 0
        with pytest.raises(httpx.ConnectError):
            doors.inside("/health/live")
    finally:
        gateway.kill()


def test_the_port_of_clients_can_not_be_the_inner_port(redis_server: RedisServer, tmp_path: Path) -> None:
    port = str(free_port())
    with pytest.raises(AssertionError, match=rf"SettingError: --admin-port: .* got {port}: .* clients come there"):
        GatewayProcess(tmp_path, redis_server.url, "none", {"port": port, "admin-port": port})
