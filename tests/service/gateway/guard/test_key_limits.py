"""How many keys one subscription may have is one setting: it counts at every door, and every door refuses alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_process import GatewayProcess, Store
from running import eventually
from tailrace.contracts.commands import commands_topic
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import COMMANDS, Topics

WIDE, NARROW = 12_000, 3


@pytest.fixture(scope="module")
def gateways(
    redis_server: RedisServer, broker: Broker, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, GatewayProcess]]:
    """Two gateways of one app, by how many keys they let one subscription have."""
    app = store.catalog.app
    Topics(Brokers(broker.address)).create(commands_topic(app), partitions=1, replication=1, config=COMMANDS)
    found = {}
    for most in (WIDE, NARROW):
        given = {"kafka": broker.address, "limit-keys": str(most), "limit-connection-keys": "30000"}
        found[most] = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, app, given)
    for gateway in found.values():
        gateway.wait_ready()
    yield found
    for gateway in found.values():
        gateway.close()


def keys(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def request(gateway: GatewayProcess, method: str, path: str, **body: Any) -> httpx.Response:
    with httpx.stream(method, gateway.url + path, json=body or None, timeout=30) as answer:
        # Events have no end.
        if answer.headers.get("content-type") != "text/event-stream":
            answer.read()
        return answer


def opened(gateway: GatewayProcess, count: int) -> str:
    """The path of a stream of so many keys."""
    answer = request(gateway, "POST", "/streams", view="names", keys=keys(count))
    assert answer.status_code == 201, answer.text
    return f"/streams/{answer.json()['id']}"


def asked(gateway: GatewayProcess, **what: Any) -> dict[str, Any]:
    """The answer to a subscription on a WebSocket."""
    socket = gateway.socket()
    socket.send(type="subscribe", id="a", **what)
    found = socket.message()
    socket.close()
    return found


def test_as_many_keys_as_the_setting_says_are_taken_at_every_door(gateways: dict[int, GatewayProcess]) -> None:
    wide = gateways[WIDE]
    assert asked(wide, view="names", keys=keys(WIDE)) == {"type": "subscribed", "id": "a"}
    path = opened(wide, WIDE - 500)
    assert request(wide, "PATCH", path, add=keys(600, WIDE - 600)).status_code == 200
    assert len(request(wide, "GET", path).json()["keys"]) == WIDE
    assert asked(wide, stream=path.rpartition("/")[2]) == {"type": "subscribed", "id": "a"}
    again = request(wide, "POST", "/streams", view="names", keys=["a"] * (WIDE + 1))
    assert again.json()["keys"] == ["a"], "a key that is named twice is one key"


@pytest.mark.parametrize("most", [WIDE, NARROW])
def test_one_key_more_is_refused_alike_at_every_door(gateways: dict[int, GatewayProcess], most: int) -> None:
    gateway, other = gateways[most], gateways[WIDE]
    path = opened(gateway, most)
    refused = [
        request(gateway, "POST", "/streams", view="names", keys=keys(most + 1)),
        request(gateway, "PATCH", path, add=["one-more"]),
        request(gateway, "PATCH", path, add=keys(most + 1, first=most)),
    ]
    said = [asked(gateway, view="names", keys=keys(most + 1))]
    if most == NARROW:
        refused.append(request(gateway, "GET", "/views/names/events?" + "&".join(f"key={key}" for key in keys(4))))
        # Another gateway, with more room, may have opened it.
        foreign = opened(other, most + 1)
        refused.append(request(gateway, "GET", f"{foreign}/events"))
        said.append(asked(gateway, stream=foreign.rpartition("/")[2]))
    expected = f"at most {most} keys in one subscription"
    for answer in refused:
        assert (answer.status_code, answer.json()["error"], answer.json()["expected"]) == (
            413,
            "too many keys",
            expected,
        )
    for message in said:
        assert (message["type"], message["id"], message["error"]) == ("error", "a", "too many keys")
        assert (message["expected"], message["retry"]) == (expected, False)
    assert [answer.json()["got"] for answer in refused[:3]] == [str(most + 1), str(most + 1), str(2 * most + 1)]
    assert request(gateway, "GET", path).json()["keys"] == keys(most)
    assert request(gateway, "PATCH", path, add=["other"], remove=["0"]).status_code == 200, "no more than before"


def test_a_stream_that_grows_elsewhere_ends_where_it_has_become_too_large(gateways: dict[int, GatewayProcess]) -> None:
    wide, narrow = gateways[WIDE], gateways[NARROW]
    path = opened(narrow, NARROW)
    socket, tap = narrow.socket(), narrow.follow(f"{path}/events")
    socket.send(type="subscribe", id="a", stream=path.rpartition("/")[2])
    assert socket.message()["type"] == "subscribed"
    assert request(narrow, "POST", f"{path}/begin").status_code == 200
    assert socket.messages("ready")[-1]["id"] == "a" and tap.frames("ready")
    assert request(wide, "PATCH", path, add=["one-more"]).status_code == 200
    error = socket.message()
    assert (error["type"], error["id"], error["error"]) == ("error", "a", "too many keys")
    assert tap.frames("close")[-1].data["reason"] == "gone"
    # Who takes keys away is never refused.
    assert request(narrow, "PATCH", path, remove=["1"]).status_code == 200
    eventually(lambda: narrow.follow(f"{path}/events").status == 200, "it is small enough again")
