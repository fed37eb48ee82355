"""The gateway over a real Redis: lookups, streams, positions, hostile keys."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from urllib.parse import quote

import httpx
import pytest

from gateway_process import GatewayProcess, Store, row
from running import PATIENCE, eventually
from tailrace.contracts.catalog import ViewProgress
from tailrace.dev.redis_server import RedisServer


def test_a_lookup_gives_the_rows_bytes_and_its_position(gateway: GatewayProcess, store: Store) -> None:
    value = '{ "movie_id":1,"rating":9.00,"name":"Ü"}'.encode()
    offset = store.put("averages", "1", 3, value)
    found = gateway.get("/views/averages/1")
    assert (found.status_code, found.content) == (200, value)
    assert found.headers["content-type"] == "application/json"
    assert found.headers["cache-control"] == "no-cache"
    assert found.headers["etag"] == f'"{store.position("averages", "1", offset)}"'


def test_a_lookup_with_the_rows_position_is_answered_with_304(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "2", 1, row(1))
    tag = gateway.get("/views/averages/2").headers["etag"]
    for header in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = gateway.get("/views/averages/2", If_None_Match=header)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    store.put("averages", "2", 2, row(2))
    assert gateway.get("/views/averages/2", If_None_Match=tag).content == row(2)


def test_a_head_request_has_the_same_head(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "3", 1, row(1))
    head, full = httpx.head(f"{gateway.url}/views/averages/3"), gateway.get("/views/averages/3")
    assert head.status_code == 200 and head.content == b""
    for name in ("etag", "content-length", "content-type", "cache-control"):
        assert head.headers[name] == full.headers[name]
    stream = httpx.head(f"{gateway.url}/views/averages/3/events")
    assert stream.status_code == 200 and stream.headers["content-type"] == "text/event-stream"


def test_an_unknown_key_and_an_unknown_view_are_told_apart(gateway: GatewayProcess, store: Store) -> None:
    key = gateway.get("/views/averages/404")
    assert key.status_code == 404
    assert key.json() == {
        "error": "unknown key",
        "view": "averages",
        "key": "404",
        "expected": "a value of movie_id",
        "remedy": key.json()["remedy"],
    }
    for path in ("/views/nothing/1", "/views/nothing/1/events"):
        found = gateway.get(path)
        assert found.status_code == 404
        assert found.json()["error"] == "unknown view" and found.json()["expected"] == ["averages", "names"]
    store.put("averages", "404", 1, row(1))
    store.put("averages", "404", 2, None)
    assert gateway.get("/views/averages/404").json()["error"] == "unknown key"


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/nothing", 404, "unknown path"),
        ("/views", 404, "unknown path"),
        ("/views/averages/a/b", 404, "unknown path"),
        ("/views/names/%FF", 400, "unreadable key"),
        ("/views/names/%FF/events", 400, "unreadable key"),
        ("/views/%FF/1", 400, "unreadable view"),
        ("/views/names/100%", 400, "unreadable key"),
        ("/views/names/" + 65537 * "a", 414, "URL too long"),
        ("/views/names/" + 65537 * "a" + "/events", 414, "URL too long"),
        ("/docs/nothing", 404, "unknown path"),
    ],
)
def test_errors_are_json_and_say_what_to_do(gateway: GatewayProcess, path: str, status: int, error: str) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ") and "content-type: application/json" in head
    found = json.loads(body)
    assert found["error"] == error and found["remedy"] and found["expected"]


def test_what_is_not_http_and_what_has_no_end_is_refused_in_json(gateway: GatewayProcess) -> None:
    for request, status in (
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + 70_000 * b"a", b"414"),
        (b"GET / HTTP/1.1\r\n" + 70 * (b"A: " + 1000 * b"a" + b"\r\n"), b"431"),
    ):
        with socket.create_connection(("127.0.0.1", gateway.port)) as link:
            link.sendall(request)
            answer = link.recv(65536)
        assert answer.startswith(b"HTTP/1.1 " + status) and b'"remedy": ' in answer


def test_a_wrong_method_is_told_the_right_one(gateway: GatewayProcess) -> None:
    found = httpx.post(f"{gateway.url}/views/averages/1")
    assert (
        found.status_code == 405 and found.json()["error"] == "method not allowed" and "GET" in found.headers["allow"]
    )


HOSTILE = [
    "a/b",
    "a%2Fb",
    "a%252Fb",
    "/",
    "..",
    "../../etc",
    "?where=1",
    "#x",
    " ",
    "a b+c",
    "%",
    "100%",
    "ключ",
    "日本語",
    "🎬",
    "\x00\x01\n\r\n\x7f",
    "data: x\n\nevent: y",
    '["a",1]',
    "events",
    "a/events",
    "{tag}",
    "*",
    "[ab]",
    "",
    "x" * 65500,
]


@pytest.mark.parametrize("key", HOSTILE, ids=lambda key: repr(key[:20]))
def test_a_key_can_be_any_text(gateway: GatewayProcess, store: Store, key: str) -> None:
    value = row(1, size=len(key))
    store.put("names", key, 1, value)
    # What would be the events of the whole view is spelt otherwise.
    path = f"/views/names/{'%65vents' if key == 'events' else quote(key, safe='')}"
    lookup = gateway.follow(path)
    assert lookup.status == 200 and int(lookup.head["content-length"]) == len(value)
    lookup.close()
    stream = gateway.follow(f"{path}/events")
    assert [frame.event for frame in stream.frames("ready")] == ["row", "ready"]
    store.put("names", key, 2, row(2))
    assert stream.frame().data == {"version": 2}
    store.put("names", key, 3, None)
    gone = stream.frame()
    assert (gone.event, gone.data) == ("gone", {"name": key})
    stream.close()


def test_a_key_is_decoded_once_wherever_the_percent_signs_are(gateway: GatewayProcess, store: Store) -> None:
    store.put("names", "p/q", 1, row(1))
    store.put("names", "p%2Fq", 1, row(2))
    assert gateway.get("/views/names/p%2Fq").content == row(1)
    assert gateway.get("/views/names/p%252Fq").content == row(2)
    assert gateway.get("/%76iews/names/p%252Fq").status_code == 404
    assert gateway.get("/views/n%61mes/%70%2F%71").content == row(1)


def test_metrics_show_what_the_pipeline_has_counted_and_skipped(gateway: GatewayProcess, store: Store) -> None:
    store.writer.put_catalog(
        "progress/averages", ViewProgress("averages", 1, 4, 120, {"not JSON": 3}, "live", lost=7).encode()
    )
    sample = 'tailrace_skipped_total{reason="not JSON",view="averages"}'
    eventually(lambda: gateway.metric(sample) == 3, "the skipped records are shown")
    assert gateway.metric('tailrace_inputs_total{view="averages"}') == 120
    assert gateway.metric('tailrace_lost_total{view="averages"}') == 7
    assert gateway.metric('tailrace_pipeline_mode{mode="live",view="averages"}') == 1
    assert gateway.metric('tailrace_generation{view="averages"}') == 1
    assert gateway.metric('tailrace_stored_offset{partition="0",view="averages"}') >= -1
    before = gateway.metric('tailrace_gateway_lookups_total{status="404"}')
    assert gateway.get("/views/averages/never").status_code == 404
    assert gateway.metric('tailrace_gateway_lookups_total{status="404"}') == before + 1
    tap = gateway.follow("/views/averages/measured/events")
    tap.frames("ready")
    delays = gateway.metric("tailrace_gateway_delay_seconds_count")
    store.put("averages", "measured", 1, row(1))
    assert tap.frame().event == "row"
    tap.close()
    assert gateway.metric("tailrace_gateway_delay_seconds_count") == delays + 1


def test_the_documentation_works_without_the_internet(gateway: GatewayProcess) -> None:
    assert gateway.get("/").headers["location"] == "/docs"
    page = gateway.get("/docs")
    assert page.status_code == 200 and "http:" not in page.text and "https:" not in page.text
    assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(assets) == 4
    for asset in assets:
        assert gateway.get(asset).status_code == 200
    paths = gateway.get("/openapi.json").json()["paths"]
    of_views = {f"/views/{name}{rest}" for name in ("averages", "names") for rest in ("", "/{key}", "/{key}/events")}
    assert of_views | {"/health/live", "/health/ready", "/metrics", "/asyncapi.json"} <= set(paths)
    assert not [path for path in paths if "{view}" in path]
    for path in paths.values():
        for operation in path.values():
            assert operation["summary"] and operation["description"] and operation["tags"]
            assert {"200", "201", "202", "204"} & set(operation["responses"])


def test_ready_lists_every_partition(gateway: GatewayProcess, store: Store) -> None:
    report = gateway.get("/health/ready").json()
    assert report["ready"] is True and report["reasons"] == []
    partitions = report["views"]["averages"]["partitions"]
    assert set(partitions) == {"0", "1"} and all(one["whole"] for one in partitions.values())


def test_a_port_in_use_is_a_clear_error(gateway: GatewayProcess, redis_server: RedisServer) -> None:
    command = [sys.executable, "-m", "tailrace", "gateway", "any-app", "--redis", redis_server.url]
    ended = subprocess.run([*command, "--port", str(gateway.port)], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    assert f"--port: expected a free port on 127.0.0.1, got {gateway.port}" in ended.stderr
    assert "Traceback" not in ended.stderr
