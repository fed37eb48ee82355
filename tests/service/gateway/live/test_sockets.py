"""Following rows over WebSocket, on a real Redis: many subscriptions on one connection, and clients that misbehave."""

from __future__ import annotations

import json
import random
import struct
import time

import pytest
import redis

from gateway_process import GatewayProcess, Store, row
from running import eventually
from socket_tap import BINARY, CLOSE, PING, PONG, SocketTap
from tailrace.dev.redis_server import RedisServer
from tailrace.store.layout.keys import default_prefix


def ready_position(found: list[dict[str, object]]) -> str:
    assert found[-1]["type"] == "ready"
    return str(found[-1]["position"])


def test_a_subscription_is_rows_ready_and_then_changes(gateway: GatewayProcess, store: Store) -> None:
    offset = store.put("averages", "10", 5, row(5))
    tap = gateway.socket(subprotocol="other, tailrace.v1")
    assert tap.status == 101 and tap.head["sec-websocket-protocol"] == "tailrace.v1"
    assert "sec-websocket-extensions" not in tap.head
    first, ready = tap.subscribe("a", view="averages", keys=["10", "11"])
    position = store.position("averages", "10", offset)
    assert first == {"type": "row", "view": "averages", "key": "10", "position": position, "row": {"version": 5}}
    assert ready["id"] == "a"
    store.put("averages", "10", 4, row(4))
    offset = store.put("averages", "10", 6, row(6))
    changed = tap.message()
    assert (changed["row"], changed["position"]) == ({"version": 6}, store.position("averages", "10", offset))
    offset = store.put("averages", "10", 7, None)
    gone = {"type": "gone", "view": "averages", "key": "10", "position": store.position("averages", "10", offset)}
    assert tap.message() == gone
    store.put("averages", "11", 1, row(1))
    assert tap.message()["key"] == "11"
    tap.close()


def test_each_key_is_resumed_by_its_own_position_and_an_idle_resume_gives_nothing(
    gateway: GatewayProcess, store: Store
) -> None:
    keys = ["20", "21", "22", "23"]
    positions = {key: store.position("averages", key, store.put("averages", key, 1, row(1))) for key in keys}
    tap = gateway.socket()
    assert [one["type"] for one in tap.subscribe("a", view="averages", keys=keys, positions=positions)] == ["ready"]
    tap.close()
    store.put("averages", "22", 2, row(2))
    store.put("averages", "23", 2, None)
    tap = gateway.socket()
    found = tap.subscribe("b", view="averages", keys=keys, positions=positions)
    assert sorted((one["type"], one.get("key")) for one in found[:-1]) == [("gone", "23"), ("row", "22")]
    tap.close()
    tap = gateway.socket()
    again = tap.subscribe("c", view="averages", keys=keys, position=ready_position(found))
    assert [one["type"] for one in again] == ["ready"]
    del positions["21"]
    more = tap.subscribe("d", view="averages", keys=["20", "21"], positions=positions)
    assert [one.get("key") for one in more] == ["21", None], "who has no position gets everything"
    tap.close()


def test_one_position_that_cannot_be_used_resets_the_subscription_once(gateway: GatewayProcess, store: Store) -> None:
    good = store.position("averages", "30", store.put("averages", "30", 1, row(1)))
    store.put("averages", "31", 1, row(1))
    tap = gateway.socket()
    found = tap.subscribe("a", view="averages", keys=["30", "31"], positions={"30": good, "31": "ffffffff.1.0-1"})
    assert [one["type"] for one in found] == ["reset", "row", "row", "ready"]
    assert (found[0]["id"], found[0]["reason"]) == ("a", "foreign")
    tap.close()


def test_subscriptions_come_and_go_on_one_connection(
    gateway: GatewayProcess, store: Store, redis_server: RedisServer
) -> None:
    tap = gateway.socket()
    for number in range(5):
        tap.subscribe(f"s{number}", view="averages", keys=[f"4{number}"])
    assert gateway.metric('tailrace_gateway_subscriptions{surface="ws"}') == 5
    assert gateway.metric('tailrace_gateway_connections{surface="ws"}') == 1
    tap.send(type="unsubscribe", id="s0")
    assert tap.message() == {"type": "unsubscribed", "id": "s0"}
    tap.subscribe("s0", view="names", keys=["anna"])
    store.put("averages", "40", 1, row(1))
    store.put("averages", "44", 1, row(1))
    store.put("names", "anna", 1, row(1))
    assert [tap.message()[name] for name in ("key", "view")] == ["44", "names"]
    tap.close()
    client = redis.Redis.from_url(redis_server.url)

    def channels() -> int:
        return len(client.pubsub_channels(f"{default_prefix(store.catalog.app)}:{{*"))

    eventually(lambda: channels() == 0, "nothing is left of the connection")
    eventually(lambda: gateway.metric('tailrace_gateway_subscriptions{surface="ws"}') == 0, "no subscription is left")


def test_a_key_that_is_followed_twice_comes_once(gateway: GatewayProcess, store: Store) -> None:
    tap = gateway.socket()
    tap.subscribe("a", view="averages", keys=["50"])
    tap.subscribe("b", view="averages", keys=["50"])
    store.put("averages", "50", 1, row(1))
    store.put("averages", "50", 2, row(2))
    assert [tap.message()["row"]["version"] for _ in range(2)] == [1, 2]
    tap.send(type="unsubscribe", id="a")
    assert tap.message()["type"] == "unsubscribed"
    store.put("averages", "50", 3, row(3))
    assert tap.message()["row"] == {"version": 3}
    tap.close()


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("nonsense", "unreadable message"),
        ("[1]", "unreadable message"),
        ("[" * 100_000, "unreadable message"),
        ('{"type":"shout"}', "unknown message"),
        ('{"type":7}', "unknown message"),
        ('{"type":"subscribe"}', "unreadable id"),
        ('{"type":"subscribe","id":""}', "unreadable id"),
        (json.dumps({"type": "subscribe", "id": "x" * 65}), "unreadable id"),
        ('{"type":"subscribe","id":"n"}', "unreadable subscription"),
        ('{"type":"subscribe","id":"n","view":"averages","feed":"f"}', "unreadable subscription"),
        ('{"type":"subscribe","id":"n","view":"averages","keys":[]}', "unreadable keys"),
        ('{"type":"subscribe","id":"n","view":"averages","keys":[1]}', "unreadable keys"),
        ('{"type":"subscribe","id":"n","view":"averages","keys":["\\ud800"]}', "unreadable keys"),
        ('{"type":"subscribe","id":"n","view":"averages","keys":["1"],"positions":[]}', "unreadable positions"),
        ('{"type":"subscribe","id":"n","view":"nowhere","keys":["1"]}', "unknown view"),
        ('{"type":"subscribe","id":"there","view":"averages","keys":["1"]}', "id in use"),
        ('{"type":"unsubscribe","id":"n"}', "unknown subscription"),
        ('{"type":"auth"}', "unreadable token"),
    ],
)
def test_a_message_that_cannot_be_used_gets_an_error_and_disturbs_nothing(
    gateway: GatewayProcess, store: Store, message: str, error: str
) -> None:
    tap = gateway.socket()
    tap.subscribe("there", view="names", keys=["x"])
    tap.send_text(message)
    found = tap.message()
    assert (found["type"], found["error"]) == ("error", error)
    assert found.get("id") in (None, "n"), "an error with the id of a subscription would end it"
    assert found["remedy"] and found["retry"] is False
    tap.send(type="ping")
    assert tap.message() == {"type": "pong"}
    version = int(time.time() * 1e6)
    store.put("names", "x", version, row(version))
    assert tap.message()["row"] == {"version": version}
    tap.close()


def test_who_does_not_speak_the_protocol_is_let_go(gateway: GatewayProcess) -> None:
    tap = gateway.socket()
    for _ in range(20):
        tap.send_frame(BINARY, b"\0")
    assert {one["type"] for one in tap.rest()} == {"error"}
    assert tap.code == 4400
    tap.close()


def test_a_message_that_is_too_long_ends_the_connection(gateway: GatewayProcess) -> None:
    for pieces in (1, 3):
        tap = gateway.socket()
        for number in range(pieces):
            tap.send_frame(1 if number == 0 else 0, b'"' + b"x" * (1 << 20), last=number == pieces - 1)
        assert list(tap.rest()) == [] and tap.code == 1009
        tap.close()


def test_pings_are_answered_and_sent(gateway: GatewayProcess) -> None:
    tap = gateway.socket()
    tap.send_frame(PING, b"are you there")
    assert tap.frame() == (PONG, b"are you there")
    tap.send(type="subscribe", id="a", view="averages", keys=["60"])
    while tap.pings < 2:
        found = tap.frame()
        assert found is not None
        if found[0] == PING:
            tap.pings += 1
            tap.send_frame(PONG, found[1])
    tap.close()


def test_a_client_that_answers_no_ping_is_ended(gateway: GatewayProcess) -> None:
    tap = gateway.socket()
    tap.subscribe("a", view="averages", keys=["61"])
    before = gateway.metric('tailrace_gateway_closed_total{reason="silent",surface="ws"}')
    assert list(tap.rest()) == [] and tap.ended
    eventually(
        lambda: gateway.metric('tailrace_gateway_closed_total{reason="silent",surface="ws"}') == before + 1, "counted"
    )
    tap.close()


def test_a_closing_handshake_is_answered(gateway: GatewayProcess) -> None:
    tap = gateway.socket()
    tap.subscribe("a", view="averages", keys=["62"])
    tap.send_frame(CLOSE, struct.pack("!H", 1000))
    assert list(tap.rest()) == [] and tap.code == 1000
    tap.close()


def test_a_client_that_does_not_read_is_conflated_per_key_and_holds_up_nobody(
    gateway: GatewayProcess, store: Store
) -> None:
    slow, fast = gateway.socket(buffer=4096), gateway.socket()
    keys = ["70", "71", "72"]
    for tap in (slow, fast):
        tap.subscribe("several", view="averages", keys=keys[:2])
        tap.subscribe("one", view="averages", keys=keys[2:])
    before = gateway.metric("tailrace_gateway_conflated_total")
    # Few, and long: who reads nothing answers no ping, either.
    last = 40
    for version in range(1, last + 1):
        for key in keys:
            store.put("averages", key, version, row(version, pad="x" * 131_072))
        seen = sorted((one["key"], one["row"]["version"]) for one in (fast.message() for _ in keys))
        assert seen == [(key, version) for key in keys], "who reads gets every version"
    copies: dict[str, list[int]] = {key: [0] for key in keys}
    while any(versions[-1] < last for versions in copies.values()):
        found = slow.message()
        copies[found["key"]].append(found["row"]["version"])
    for versions in copies.values():
        assert versions == sorted(set(versions)) and len(versions) < last, "fewer, never an older one, none twice"
    assert gateway.metric("tailrace_gateway_conflated_total") > before
    store.put("averages", "72", last + 1, row(last + 1))
    assert slow.message()["row"] == fast.message()["row"] == {"version": last + 1}
    slow.close()
    fast.close()


def test_a_client_that_asks_without_reading_is_not_read_from(gateway: GatewayProcess) -> None:
    tap = gateway.socket(buffer=4096)
    tap._socket.settimeout(1)
    frame = b"\x81\x8f" + bytes(4) + b'{"type":"ping"}'
    sent = 0
    while sent < 200_000_000 and not tap.ended:
        tap.send_bytes(frame * 10_000)
        sent += len(frame) * 10_000
    assert sent < 200_000_000, "answers pile up without end"
    tap.close()


def test_whatever_bytes_come_the_gateway_lives(gateway: GatewayProcess, store: Store) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    there = gateway.socket()
    there.subscribe("a", view="averages", keys=["80"])
    for _ in range(60):
        tap = gateway.socket()
        for _ in range(chance.randrange(1, 6)):
            payload = chance.randbytes(chance.randrange(0, 200))
            if chance.random() < 0.5:
                tap.send_bytes(payload)
            else:
                tap.send_frame(chance.randrange(16), payload, last=chance.random() < 0.7)
        tap.close()
    version = 1
    store.put("averages", "80", version, row(version))
    assert there.message()["row"] == {"version": 1}, f"seed {seed}"
    there.close()
    eventually(lambda: gateway.metric('tailrace_gateway_connections{surface="ws"}') == 0, f"seed {seed}: none is left")
    assert "Traceback" not in gateway.log.read_text(), f"seed {seed}"


def test_a_path_that_is_no_web_socket_is_refused(gateway: GatewayProcess) -> None:
    tap = SocketTap(gateway.port, "/nowhere")
    assert tap.status in (403, 404)
    tap.close()
    assert gateway.get("/ws").status_code == 404
