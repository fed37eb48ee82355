"""The gateway over a real Redis: lookups, streams, positions, hostile keys."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
import redis

from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from tailrace.catalog import Progress
from tailrace.dev.redis_server import RedisServer
from tailrace.store.keys import default_prefix, partition_keys

APP = "gateway-serving"


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> Store:
    store = Store(redis_server.url, APP, view("averages"), view("names", "name string", partitions=1))
    store.publish_catalog()
    store.begin()
    return store


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    # A sweep this rare helps no test: what arrives came through pub/sub.
    process = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, APP, sweep=3600)
    process.wait_ready()
    yield process
    process.close()


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
    path = f"/views/names/{quote(key, safe='')}"
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


def test_a_stream_is_row_ready_and_then_changes(gateway: GatewayProcess, store: Store) -> None:
    offset = store.put("averages", "10", 5, row(5))
    tap = gateway.follow("/views/averages/10/events")
    assert tap.status == 200
    assert tap.head["content-type"] == "text/event-stream"
    assert tap.head["cache-control"] == "no-store"
    assert tap.head["x-accel-buffering"] == "no"
    first, ready = tap.frames("ready")
    assert tap.retry == "1000"
    assert (first.event, first.data, first.id) == ("row", {"version": 5}, store.position("averages", "10", offset))
    assert ready.data == {"view": "averages", "key": ["movie_id"], "generation": 1}
    store.put("averages", "10", 4, row(4))
    offset = store.put("averages", "10", 6, row(6))
    live = tap.frame()
    assert (live.data, live.id) == ({"version": 6}, store.position("averages", "10", offset))
    store.put("averages", "10", 7, None)
    gone = tap.frame()
    assert (gone.event, gone.data) == ("gone", {"movie_id": 10})
    store.put("averages", "10", 8, row(8))
    assert tap.frame().data == {"version": 8}
    tap.close()


def test_a_key_that_holds_nothing_yet_is_ready_at_once(gateway: GatewayProcess, store: Store) -> None:
    tap = gateway.follow("/views/averages/11/events")
    assert tap.frame().event == "ready"
    store.put("averages", "11", 1, row(1))
    assert tap.frame().data == {"version": 1}
    tap.close()


def test_a_quiet_stream_is_kept_alive(gateway: GatewayProcess, store: Store) -> None:
    tap = gateway.follow("/views/averages/12/events")
    tap.frames("ready")
    tap.comment()
    tap.comment()
    tap.close()


def test_a_resume_gives_the_exact_suffix_and_an_idle_one_nothing(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "13", 1, row(1))
    tap = gateway.follow("/views/averages/13/events")
    position = tap.frames("ready")[-1].id
    tap.close()
    assert position is not None
    for _ in range(2):
        idle = gateway.follow("/views/averages/13/events", headers={"Last-Event-ID": position})
        ready = idle.frame()
        assert ready.event == "ready" and ready.id == position
        idle.close()
    store.put("averages", "13", 2, row(2))
    store.put("averages", "13", 3, row(3))
    for query, headers in (("", {"Last-Event-ID": position}), (f"?last_event_id={position}", {})):
        again = gateway.follow(f"/views/averages/13/events{query}", headers=headers)
        assert [frame.data.get("version") for frame in again.frames("ready")] == [3, None]
        again.close()
    store.put("averages", "13", 4, None)
    again = gateway.follow("/views/averages/13/events", headers={"Last-Event-ID": position})
    assert [frame.event for frame in again.frames("ready")] == ["gone", "ready"]
    again.close()


def test_the_header_wins_over_the_parameter_that_a_browser_repeats(gateway: GatewayProcess, store: Store) -> None:
    offset = store.put("averages", "14", 1, row(1))
    position = store.position("averages", "14", offset)
    tap = gateway.follow("/views/averages/14/events?last_event_id=nonsense", headers={"Last-Event-ID": position})
    assert tap.frame().event == "ready"
    tap.close()


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        ("nonsense", "unreadable"),
        ("ffffffff.1.0-1", "foreign"),
        ("{lineage}.7.0-0.1-0", "generation"),
        ("{lineage}.1.0-999999.1-999999", "ahead"),
        ("{lineage}.1.0-9999999999999999999.1-9999999999999999999", "ahead"),
    ],
)
def test_a_position_that_cannot_be_used_gets_reset_and_a_snapshot(
    gateway: GatewayProcess, store: Store, position: str, reason: str
) -> None:
    key = "15"
    store.put("averages", key, store.offsets["averages", store.partition("averages", key)] + 2, row(1))
    lineage = store.catalog.lineage(store.catalog.views["averages"])
    header = {"Last-Event-ID": position.format(lineage=lineage)}
    before = gateway.metric(f'tailrace_gateway_resets_total{{reason="{reason}"}}')
    tap = gateway.follow(f"/views/averages/{key}/events", headers=header)
    reset, snapshot, ready = tap.frames("ready")
    assert (reset.event, reset.data["reason"]) == ("reset", reason)
    assert snapshot.event == "row" and ready.event == "ready"
    tap.close()
    assert gateway.metric(f'tailrace_gateway_resets_total{{reason="{reason}"}}') == before + 1
    # Who loses the connection right after a reset gets the snapshot all the same.
    assert reset.id is not None
    again = gateway.follow(f"/views/averages/{key}/events", headers={"Last-Event-ID": reset.id})
    assert [frame.event for frame in again.frames("ready")] == ["row", "ready"]
    again.close()


def test_a_position_of_another_partition_gets_the_snapshot_of_this_one(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "318", 1, row(1))
    lineage = store.catalog.lineage(store.catalog.views["averages"])
    other = 1 - store.partition("averages", "318")
    for position in (f"{lineage}.1", f"{lineage}.1.{other}-0"):
        tap = gateway.follow("/views/averages/318/events", headers={"Last-Event-ID": position})
        assert [frame.event for frame in tap.frames("ready")] == ["row", "ready"]
        tap.close()


def test_a_position_ahead_of_the_store_waits_for_it(gateway: GatewayProcess, store: Store) -> None:
    key = "16"
    offset = store.put("averages", key, 1, row(1))
    ahead = store.position("averages", key, offset + 5)
    tap = gateway.follow(f"/views/averages/{key}/events", headers={"Last-Event-ID": ahead})
    progress = tap.any_frame()
    assert (progress.event, progress.data) == ("progress", {"offset": offset, "target": offset + 5})
    store.reach("averages", store.partition("averages", key), offset + 5)
    assert tap.frame().event == "ready", "what it has seen does not come again"
    tap.close()


def test_one_channel_serves_all_followers_of_a_key(
    gateway: GatewayProcess, store: Store, redis_server: RedisServer
) -> None:
    names = partition_keys(default_prefix(APP), "averages", store.partition("averages", "17"))
    client = redis.Redis.from_url(redis_server.url)

    def listeners() -> int:
        return int(client.pubsub_numsub(names.channel(b"17"))[0][1])

    taps = [gateway.follow("/views/averages/17/events") for _ in range(5)]
    for tap in taps:
        tap.frames("ready")
    assert listeners() == 1
    store.put("averages", "17", 1, row(1))
    assert [tap.frame().data for tap in taps] == 5 * [{"version": 1}]
    taps.pop().close()
    store.put("averages", "17", 2, row(2))
    assert [tap.frame().data for tap in taps] == 4 * [{"version": 2}]
    for tap in taps:
        tap.close()
    eventually(lambda: listeners() == 0, "the last follower takes the channel along")
    eventually(lambda: gateway.metric("tailrace_gateway_connections") == 0, "no connection is left")
    assert gateway.metric("tailrace_gateway_followers") == 0 and gateway.metric("tailrace_gateway_channels") == 0


def test_an_http_1_0_client_is_served_without_chunks(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "18", 1, row(1))
    tap = gateway.follow("/views/averages/18/events", version="1.0")
    assert "transfer-encoding" not in tap.head and tap.head["connection"] == "close"
    assert [frame.event for frame in tap.frames("ready")] == ["row", "ready"]
    store.put("averages", "18", 2, row(2))
    assert tap.frame().data == {"version": 2}
    tap.close()


def test_a_request_behind_a_stream_does_not_disturb_it(gateway: GatewayProcess, store: Store) -> None:
    tap = gateway.follow("/views/averages/19/events")
    tap.frames("ready")
    tap._socket.sendall(b"GET /health/live HTTP/1.1\r\nHost: test\r\n\r\n")
    store.put("averages", "19", 1, row(1))
    assert tap.frame().data == {"version": 1}
    tap.close()
    eventually(lambda: gateway.metric("tailrace_gateway_connections") == 0, "the connection is gone")


def test_a_client_that_does_not_read_is_conflated_and_holds_up_nobody(gateway: GatewayProcess, store: Store) -> None:
    store.put("averages", "20", 1, row(1))
    slow = gateway.follow("/views/averages/20/events", buffer=4096)
    slow.frames("ready")
    fast = gateway.follow("/views/averages/20/events")
    fast.frames("ready")
    seen, last = [1], 400
    for version in range(2, last + 1):
        store.put("averages", "20", version, row(version, pad="x" * 65536))
        while seen[-1] < version:
            seen.append(fast.frame().data["version"])
    assert seen == list(range(1, last + 1)), "who reads gets every version"
    versions = [1]
    while versions[-1] < last:
        versions.append(slow.frame().data["version"])
    assert versions == sorted(set(versions)) and len(versions) < last, "who does not gets fewer, never an older one"
    assert gateway.metric("tailrace_gateway_conflated_total") > 0
    store.put("averages", "20", last + 1, row(last + 1))
    assert slow.frame().data == fast.frame().data == {"version": last + 1}
    slow.close()
    fast.close()


def test_metrics_show_what_the_pipeline_has_counted_and_skipped(gateway: GatewayProcess, store: Store) -> None:
    store.writer.put_catalog("progress/averages", Progress("averages", 1, 4, 120, {"not JSON": 3}).encode())
    sample = 'tailrace_skipped_total{reason="not JSON",view="averages"}'
    eventually(lambda: gateway.metric(sample) == 3, "the skipped records are shown")
    assert gateway.metric('tailrace_inputs_total{view="averages"}') == 120
    assert gateway.metric('tailrace_generation{view="averages"}') == 1
    assert gateway.metric('tailrace_stored_offset{partition="0",view="averages"}') >= -1
    assert gateway.metric("tailrace_gateway_delay_seconds_count") > 0
    assert gateway.metric('tailrace_gateway_lookups_total{status="404"}') > 0


def test_the_documentation_works_without_the_internet(gateway: GatewayProcess) -> None:
    assert gateway.get("/").headers["location"] == "/docs"
    page = gateway.get("/docs")
    assert page.status_code == 200 and "http:" not in page.text and "https:" not in page.text
    assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(assets) == 3
    for asset in assets:
        assert gateway.get(asset).status_code == 200
    paths = gateway.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/views/{view}/{key}",
        "/views/{view}/{key}/events",
        "/health/live",
        "/health/ready",
        "/metrics",
    }
    for path in paths.values():
        for operation in path.values():
            assert operation["summary"] and operation["description"] and operation["tags"]
            assert "200" in operation["responses"] and "422" not in operation["responses"]


def test_ready_lists_every_partition(gateway: GatewayProcess, store: Store) -> None:
    report = gateway.get("/health/ready").json()
    assert report["ready"] is True and report["reasons"] == []
    partitions = report["views"]["averages"]["partitions"]
    assert set(partitions) == {"0", "1"} and all(one["whole"] for one in partitions.values())


def test_a_port_in_use_is_a_clear_error(gateway: GatewayProcess, redis_server: RedisServer) -> None:
    command = [sys.executable, "-m", "tailrace", "gateway", APP, "--redis", redis_server.url]
    ended = subprocess.run([*command, "--port", str(gateway.port)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"--port: expected a free port on 127.0.0.1, got {gateway.port}" in ended.stderr
    assert "Traceback" not in ended.stderr
