"""Following feeds over SSE, on a real Redis: every event once, in order, from the client's position on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from feed_serving import FeedStore, begun
from gateway_process import Frame, GatewayProcess, Tap
from running import eventually
from tailrace.dev.redis_server import RedisServer


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> FeedStore:
    """One feed; what is kept for one client is 4 events."""
    return begun(FeedStore(redis_server.url, "test-gateway-feeds", length=4))


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: FeedStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that serves it. Registrations are checked too rarely to help: what arrives came through pub/sub."""
    directory = tmp_path_factory.mktemp("gateway")
    process = GatewayProcess(directory, redis_server.url, store.app, {"feed-backlog": "300000"}, lease=3600, grace=30)
    process.wait_ready()
    yield process
    process.close()


def follow(gateway: GatewayProcess, client: str, position: str | None = None) -> Tap:
    headers = {} if position is None else {"Last-Event-ID": position}
    tap = gateway.follow(f"/feeds/notices/{client}/events", headers=headers)
    assert tap.status == 200
    return tap


def told(frames: list[Frame]) -> list[str]:
    """Frames as text: an event's own, and the names of others."""
    return [frame.data["text"] if frame.event == "event" else frame.event for frame in frames]


def test_a_stream_is_ready_and_then_every_event(gateway: GatewayProcess, store: FeedStore) -> None:
    before = store.put("ann", "before")
    tap = follow(gateway, "ann")
    assert tap.head["content-type"] == "text/event-stream" and tap.head["cache-control"] == "no-store"
    ready = tap.frame()
    assert tap.retry == "1000"
    assert (ready.event, ready.data) == ("ready", {"feed": "notices", "client": "ann", "generation": 1})
    assert ready.id == store.position(before)
    store.pass_by()
    offset = store.put("ann", "same", "same", 'say "ü\u2028"'.replace('"', '\\"'))
    frames = [tap.frame() for _ in range(3)]
    assert told(frames) == ["same", "same", 'say "ü\u2028"']
    assert [frame.id for frame in frames] == [store.position(offset - n) for n in (2, 1, 0)]
    tap.close()


def test_a_resume_gives_the_exact_suffix_and_an_idle_one_nothing(gateway: GatewayProcess, store: FeedStore) -> None:
    tap = follow(gateway, "bea")
    position = cast(str, tap.frame().id)
    tap.close()
    store.pass_by()
    for _ in range(2):
        idle = follow(gateway, "bea", position)
        ready = idle.frame()
        assert ready.event == "ready" and ready.id == store.position(store.offset)
        idle.close()
    store.put("bea", "1", "2", "3")
    for query, headers in (("", {"Last-Event-ID": position}), (f"?last_event_id={position}", {})):
        again = gateway.follow(f"/feeds/notices/bea/events{query}", headers=headers)
        frames = again.frames("ready")
        assert told(frames) == ["1", "2", "3", "ready"]
        again.close()
    half = follow(gateway, "bea", frames[1].id)
    assert told(half.frames("ready")) == ["3", "ready"]
    store.put("bea", "4")
    assert half.frame().data == {"text": "4"}
    half.close()


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        ("nonsense", "unreadable"),
        ("ffffffff.1.0-1", "foreign"),
        ("{lineage}.1.0-999999", "ahead"),
        ("{lineage}.1.7-3", "missed"),
    ],
)
def test_a_position_that_cannot_be_used_gets_reset_and_what_is_kept(
    gateway: GatewayProcess, store: FeedStore, position: str, reason: str
) -> None:
    client = f"cid-{reason}"
    tap = follow(gateway, client)
    tap.frames("ready")
    store.put(client, "kept")
    before = gateway.metric(f'tailrace_gateway_resets_total{{reason="{reason}"}}')
    odd = follow(gateway, client, position.format(lineage=store.place.lineage))
    frames = odd.frames("ready")
    assert told(frames) == ["reset", "kept", "ready"]
    assert frames[0].data["reason"] == reason and frames[0].data["message"]
    assert gateway.metric(f'tailrace_gateway_resets_total{{reason="{reason}"}}') == before + 1
    store.put(client, "live")
    assert told([tap.frame(), tap.frame()]) == ["kept", "live"] and odd.frame().data == {"text": "live"}
    for one in (tap, odd):
        one.close()


def test_a_position_of_another_generation_is_as_good(gateway: GatewayProcess, store: FeedStore) -> None:
    tap = follow(gateway, "dan")
    tap.frames("ready")
    offset = store.put("dan", "1", "2")
    for generation in (0, 1, 7):
        again = follow(gateway, "dan", store.position(offset - 1, generation))
        assert told(again.frames("ready")) == ["2", "ready"]
        again.close()
    tap.close()


def test_who_has_more_to_catch_up_with_than_is_kept_is_told(gateway: GatewayProcess, store: FeedStore) -> None:
    tap = follow(gateway, "eve")
    position = cast(str, tap.frame().id)
    store.put("eve", *"123456")
    assert told([tap.frame() for _ in range(6)]) == list("123456"), "who follows gets all"
    late = follow(gateway, "eve", position)
    frames = late.frames("ready")
    assert told(frames) == ["reset", *"3456", "ready"]
    assert frames[0].data["reason"] == "missed" and "at most 4" in frames[0].data["message"]
    late.close()
    # Who loses the connection right after the reset is told again, and gets the same.
    again = follow(gateway, "eve", frames[0].id)
    assert told(again.frames("ready")) == ["reset", *"3456", "ready"]
    again.close()
    exact = follow(gateway, "eve", frames[1].id)
    assert told(exact.frames("ready")) == [*"456", "ready"]
    exact.close()
    tap.close()


def test_connections_of_one_client_share_a_registration_and_a_channel(
    gateway: GatewayProcess, store: FeedStore
) -> None:
    channel = store.keys.channel(store.place.lineage, b"fay")

    def listeners() -> int:
        return int(store.redis.pubsub_numsub(channel)[0][1])

    tabs = [follow(gateway, "fay") for _ in range(3)]
    for tab in tabs:
        tab.frames("ready")
    assert listeners() == 1 and gateway.metric("tailrace_gateway_feed_listeners") == 1
    leases = cast(bytes, store.redis.hget(cast(str, store.keys.leases), "fay"))
    assert len(leases.split()) == 2, "one gateway, once"
    store.put("fay", "1")
    assert [tab.frame().data for tab in tabs] == 3 * [{"text": "1"}]
    tabs.pop().close()
    store.put("fay", "2")
    assert [tab.frame().data for tab in tabs] == 2 * [{"text": "2"}]
    assert b"fay" in store.listening()
    for tab in tabs:
        tab.close()
    eventually(lambda: listeners() == 0, "the last one takes the channel along")
    eventually(lambda: store.redis.hget(cast(str, store.keys.leases), "fay") is None, "and signs off")
    assert gateway.metric("tailrace_gateway_feed_listeners") == 0


def test_who_comes_back_at_once_stays_registered(gateway: GatewayProcess, store: FeedStore) -> None:
    position = None
    for n in range(20):
        tap = follow(gateway, "gus", position)
        frames = tap.frames("ready")
        assert told(frames) == ([f"{n}", "ready"] if n else ["ready"])
        position = frames[-1].id
        tap.close()
        store.put("gus", f"{n + 1}")
    tap = follow(gateway, "gus", position)
    tap.frames("ready")
    assert store.redis.hget(cast(str, store.keys.leases), "gus") is not None
    tap.close()


@pytest.mark.parametrize("alone", [True, False])
def test_a_slow_client_is_ended_with_its_position_and_costs_others_nothing(
    gateway: GatewayProcess, store: FeedStore, alone: bool
) -> None:
    client = f"hal-{alone}"
    closed = 'tailrace_gateway_closed_total{reason="slow",surface="sse"}'
    before = gateway.metric(closed)
    slow = gateway.follow(f"/feeds/notices/{client}/events", buffer=4096)
    slow.frames("ready")
    fast = None if alone else follow(gateway, client)
    if fast is not None:
        fast.frames("ready")
    pad, count = "x" * 30_000, 400
    for n in range(count):
        store.put(client, f"{n} {pad}")
        if fast is not None:
            assert fast.frame().data["text"].startswith(f"{n} "), "who reads gets every event"
    eventually(lambda: f"feed=slow feed=notices client=b'{client}'" in gateway.log.read_text(), "it is found slow")
    frames = slow.frames("close")
    seen = [int(frame.data["text"].split()[0]) for frame in frames[:-1]]
    assert seen == list(range(len(seen))) and len(seen) < count, "what came is everything up to there"
    assert (frames[-1].data["reason"], frames[-1].data["retry"], frames[-1].id) == ("slow", True, None)
    assert list(slow.rest()) == [] and slow.ended
    eventually(lambda: gateway.metric(closed) == before + 1, "the slow one is counted")
    back = follow(gateway, client, frames[-2].id)
    assert back.frame().event == "reset", "only 4 events are kept here"
    back.close()
    if fast is not None:
        fast.close()


def test_a_client_that_was_slow_for_a_moment_gets_every_event(gateway: GatewayProcess, store: FeedStore) -> None:
    store.declare(length=10_000)
    slow = gateway.follow("/feeds/notices/ida/events", buffer=4096)
    slow.frames("ready")
    fast = follow(gateway, "ida")
    fast.frames("ready")
    # More than sockets and transports hold, in a burst that is under the limit of what may wait.
    for n in range(700):
        store.put("ida", f"{n} " + "x" * 8000)
        if n % 10 == 9:
            for m in range(n - 9, n + 1):
                assert fast.frame().data["text"].startswith(f"{m} ")
            for m in range(n - 9, n + 1):
                assert slow.frame().data["text"].startswith(f"{m} ")
    fast.close()
    slow.close()


def test_a_feed_that_always_keeps_events_begins_with_them(
    redis_server: RedisServer, fresh: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = begun(FeedStore(redis_server.url, fresh, retain="always", hold=0.0, length=200))
    store.put("ann", *(f"{n}" for n in range(150)))
    gateway = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, fresh)
    gateway.wait_ready()
    tap = follow(gateway, "ann")
    frames = tap.frames("ready")
    assert told(frames) == [*(f"{n}" for n in range(150)), "ready"]
    tap.close()
    eventually(lambda: gateway.metric("tailrace_gateway_feed_listeners") == 0, "it has left")
    store.put("ann", "away")
    again = follow(gateway, "ann", frames[-1].id)
    assert told(again.frames("ready")) == ["away", "ready"]
    store.put("ann", "live")
    assert again.frame().data == {"text": "live"}
    gateway.close()


def test_who_was_away_for_longer_than_the_hold_time_is_told_and_nothing_is_left_of_who_is_away(
    redis_server: RedisServer, fresh: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = begun(FeedStore(redis_server.url, fresh, hold=0.0))
    gateway = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, fresh, lease=3600)
    gateway.wait_ready()
    store.put("ann", "nobody listens")
    assert store.held() == set()
    tap = follow(gateway, "ann")
    tap.frames("ready")
    store.put("ann", "heard")
    position = tap.frame().id
    assert store.keys.history(store.begun, b"ann") in store.held()
    tap.close()
    eventually(lambda: store.redis.hlen(cast(str, store.keys.leases)) == 0, "it has signed off")
    store.sweep()
    assert store.held() == set(), "nothing is left in Redis"
    store.put("ann", "missed")
    back = follow(gateway, "ann", position)
    reset, ready = back.frames("ready")
    assert reset.data["reason"] == "missed" and "hold time, 0 s" in reset.data["message"]
    back.close()
    again = follow(gateway, "ann", ready.id)
    assert told(again.frames("ready")) == ["ready"], "nothing came since"
    gateway.close()


def test_refusals_say_what_was_expected(gateway: GatewayProcess, store: FeedStore) -> None:
    found = gateway.get("/feeds/notes/ann/events")
    assert found.status_code == 404 and found.json()["error"] == "unknown feed"
    assert found.json()["expected"] == ["notices"]
    assert gateway.get("/feeds/notices/%FF/events").status_code == 400
    document = gateway.get("/openapi.json").json()["paths"]["/feeds/notices/{client}/events"]["get"]
    assert "event: event" in document["responses"]["200"]["content"]["text/event-stream"]["example"]


def test_a_key_of_any_text_is_a_client(gateway: GatewayProcess, store: FeedStore) -> None:
    for path, client in (("", ""), ("a%2Fb%20%25", "a/b %"), ("%5B%22c7%22%2C1%5D", '["c7",1]')):
        tap = follow(gateway, path)
        assert tap.frame().data["client"] == client
        store.put(client, "hello")
        assert tap.frame().data == {"text": "hello"}
        tap.close()
