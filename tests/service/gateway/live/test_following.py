"""Following rows over SSE, on a real Redis: snapshot, updates, resume, slow and odd clients."""

from __future__ import annotations

import pytest
import redis

from gateway_process import GatewayProcess, Store, row
from running import eventually
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import default_prefix, partition_keys
from tailrace.store.write.tombstones import Pruned, StoredTombstones


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
    names = partition_keys(default_prefix(store.catalog.app), "averages", store.partition("averages", "17"))
    lineage = store.catalog.lineage(store.catalog.views["averages"])
    client = redis.Redis.from_url(redis_server.url)

    def listeners() -> int:
        return int(client.pubsub_numsub(names.channel(lineage, b"17"))[0][1])

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
    eventually(lambda: gateway.metric('tailrace_gateway_connections{surface="sse"}') == 0, "no connection is left")
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
    eventually(lambda: gateway.metric('tailrace_gateway_connections{surface="sse"}') == 0, "the connection is gone")


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


def test_a_client_that_comes_back_after_its_tombstone_was_forgotten_gets_reset_and_not_silence(
    gateway: GatewayProcess, store: Store
) -> None:
    kept = store.position("names", "here", store.put("names", "here", 1, row(1)))
    tap = gateway.follow("/views/names/away/events")
    store.put("names", "away", 1, row(1))
    position = tap.frames("row")[-1].id
    assert position is not None
    tap.close()
    store.put("names", "away", 2, None)
    place = ("names", 0, store.catalog.lineage(store.catalog.views["names"]))
    for time, batch in ((0, 0), (1000, 2), (1000, 2)):
        found = StoredTombstones(store.writer).prune(
            *place, generation=1, now=time, keep=1000, batch=batch, keys=[b"away", b"here"]
        )
    assert isinstance(found, Pruned) and found.dropped == 1
    tap = gateway.follow("/views/names/away/events", headers={"Last-Event-ID": position})
    reset, ready = tap.frames("ready")
    assert (reset.event, reset.data["reason"]) == ("reset", "forgotten")
    assert ready.id is not None
    tap.close()
    # Where a row is, nothing was forgotten; and who has seen the reset is up to date.
    for key, after in (("here", kept), ("away", ready.id)):
        tap = gateway.follow(f"/views/names/{key}/events", headers={"Last-Event-ID": after})
        assert tap.frame().event == "ready"
        tap.close()
