"""The control API through real gateways, a materializer, Kafka and Redis: any gateway serves any step of any stream."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from query_gateway import QueryGateway
from running import eventually
from stream_serving import Pair, command, commands, connected, opened, row, two_gateways
from streaming import Streams
from tailrace.contracts.key_changes import MOST as MOST_CHANGES
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.store.connection.servers import MOST


@pytest.fixture(scope="module")
def streams(broker: Broker) -> Streams:
    return Streams(broker, "streams")


@pytest.fixture(scope="module")
def gateways(streams: Streams, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two gateways beside a running materializer."""
    with two_gateways(streams, redis_server, tmp_path_factory.mktemp("gateways")) as pair:
        yield pair


def test_a_stream_opened_on_one_gateway_is_connected_to_on_another_and_begun_on_the_first(
    gateways: Pair, streams: Streams
) -> None:
    first, second = gateways
    stream = opened(first, streams, where="n > 2")
    assert stream["begun"] is False and stream["ttl"] == 5
    copy = connected(second, stream)
    assert copy.tap.idle(), "nothing comes before it has begun"
    assert command(first, "POST", stream, "/begin").json()["begun"] is True
    copy.ready()
    assert set(copy.rows) >= {"k0", "k1"}
    shown = command(second, "GET", stream).json()
    assert shown["where"] == "n > 2" and shown["begun"] and shown["expires"] > 0
    copy.close()
    back = connected(first, stream, copy.position)
    assert [frame.event for frame in back.ready()] == ["ready"]


def test_keys_are_added_and_removed_while_a_stream_is_live(gateways: Pair, streams: Streams) -> None:
    first, second = gateways
    stream = opened(first, streams, keys=["k0", "k1"])
    command(second, "POST", stream, "/begin")
    copy = connected(first, stream)
    copy.ready()
    assert set(copy.rows) == {"k0", "k1"}
    assert command(second, "PATCH", stream, add=["k2", "k1", "later"], remove=["k0"]).json()["keys"] == [
        "k1",
        "k2",
        "later",
    ]
    copy.until({"k1", "k2"})
    streams.log.put(b"later", 1, row("later", 1))
    copy.until({"k1", "k2", "later"})
    command(second, "PATCH", stream, remove=["later", "k1", "k2"])
    copy.until(set())
    refused = command(first, "PATCH", opened(first, streams), add=["k0"])
    assert refused.status_code == 400 and "whole view" in refused.text


def test_a_client_that_was_away_hears_of_keys_that_were_added_and_removed_meanwhile(
    gateways: Pair, streams: Streams
) -> None:
    first, second = gateways
    stream = opened(first, streams, keys=["k0", "k1", "k2", "k3"], ttl=60)
    command(first, "POST", stream, "/begin")
    copy = connected(first, stream)
    copy.ready()
    copy.close()
    # The view is quiet: no offset says that the row of k4 is news.
    command(second, "PATCH", stream, add=["k4"], remove=["k0", "k1"])
    command(first, "PATCH", stream, add=["k1", "k5"], remove=["k2", "k5"])
    back = connected(second, stream, copy.position)
    back.rows = copy.rows
    frames = back.ready()
    assert set(back.rows) == {"k1", "k3", "k4"} and not back.resets
    rows = sorted(frame.data["k"] for frame in frames if frame.event == "row")
    assert rows == ["k1", "k4"], "none that was held before and stayed"
    back.close()
    for gateway in gateways:
        idle = connected(gateway, stream, back.position)
        assert [frame.event for frame in idle.ready()] == ["ready"]
        idle.close()
    # What is told while it is live is not told again, either.
    live = connected(first, stream, back.position)
    live.rows = back.rows
    live.ready()
    command(second, "PATCH", stream, add=["k0"], remove=["k1"])
    live.until({"k0", "k3", "k4"})
    while live.seen[-1].id is None:
        live.take(live.tap.frame())
    live.close()
    assert [frame.event for frame in connected(second, stream, live.position).ready()] == ["ready"]


def test_a_position_that_knows_of_changes_that_the_stream_does_not_gets_reset_and_everything(
    gateways: Pair, streams: Streams
) -> None:
    first, second = gateways
    stream = opened(first, streams, keys=["k0"], ttl=60)
    command(first, "POST", stream, "/begin")
    copy = connected(first, stream)
    copy.ready()
    ahead = connected(second, stream, f"{copy.position}.c1")
    ahead.ready()
    assert (ahead.resets, set(ahead.rows)) == (["ahead"], {"k0"})
    command(second, "PATCH", stream, add=[f"other {n}" for n in range(MOST_CHANGES + 1)])
    late = connected(first, stream, copy.position)
    late.ready()
    assert (late.resets, set(late.rows)) == (["forgotten"], {"k0"})


def test_a_stream_that_is_deleted_ends_its_connections_and_its_record(gateways: Pair, streams: Streams) -> None:
    first, second = gateways
    stream = opened(first, streams)
    command(first, "POST", stream, "/begin")
    copy = connected(first, stream)
    copy.ready()
    assert stream["id"] in commands(streams)
    assert command(second, "DELETE", stream).status_code == 204
    frame = copy.tap.frame()
    assert (frame.event, frame.data["reason"]) == ("close", "gone")
    assert command(first, "GET", stream).status_code == 404
    assert command(second, "DELETE", stream).status_code == 404
    eventually(lambda: stream["id"] not in commands(streams), "its record is gone, also behind a refresh")


def test_a_stream_that_nobody_uses_expires_and_leaves_no_record(gateways: Pair, streams: Streams) -> None:
    first, second = gateways
    unused, used = opened(first, streams), opened(first, streams, keys=["k0"])
    copy = connected(second, used)
    eventually(lambda: command(first, "GET", unused).status_code == 404, "the unused one has expired")
    eventually(lambda: unused["id"] not in commands(streams), "its record has ended")
    command(first, "POST", used, "/begin")
    copy.ready()
    assert command(first, "GET", used).status_code == 200


def test_streams_survive_the_loss_of_redis(gateways: Pair, streams: Streams, redis_server: RedisServer) -> None:
    first, second = gateways
    held, left = opened(first, streams, keys=["k0"]), opened(first, streams, keys=["k1"])
    command(first, "POST", held, "/begin")
    copy = connected(first, held)
    copy.ready()
    client = redis.Redis.from_url(redis_server.url)
    for name in client.scan_iter(f"{streams.log.prefix}:stream*"):
        client.delete(name)
    assert command(second, "GET", left).json()["keys"] == ["k1"]
    assert command(second, "PATCH", held, add=["k2"]).status_code == 200
    copy.until({"k0", "k2"})
    assert command(second, "GET", {"id": "s-not-one-of-them"}).status_code == 404


async def churn(gateway: QueryGateway, paths: list[str]) -> None:
    """Connect to each path, a hundred at once, wait for the end of the snapshot on every other one, and leave."""
    room = asyncio.Semaphore(100)

    async def one(number: int, path: str) -> None:
        async with room:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            await reader.readuntil(b"event: ready" if number % 2 else b"200 OK\r\n")
            writer.transport.abort()

    await asyncio.gather(*(one(number, path) for number, path in enumerate(paths)))


def test_thousands_of_connects_and_disconnects_leave_nothing(
    gateways: Pair, streams: Streams, redis_server: RedisServer, examples: int
) -> None:
    first, second = gateways
    for gateway in gateways:
        gateway.disconnect()
    for id in commands(streams):
        command(first, "DELETE", {"id": id})
    client = redis.Redis.from_url(redis_server.url)

    def left() -> dict[str, float]:
        found: dict[str, float] = {
            "keys": len(list(client.scan_iter(f"{streams.log.prefix}:stream*", count=1000))),
            "queries": len(list(client.scan_iter(f"{streams.log.prefix}:*:quer*", count=1000))),
            "channels": len(client.pubsub_channels(f"{streams.log.prefix}:*")),
        }
        for number, gateway in enumerate(gateways):
            found[f"descriptors {number}"] = len(os.listdir(f"/proc/{gateway.process.pid}/fd"))  # noqa: PTH208
            lines = gateway.get("/metrics").text.splitlines()
            samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
            for name in ("tasks", "followers", "channels", "queries", "streams", 'connections{surface="sse"}'):
                found[f"{name} {number}"] = float(samples[f"tailrace_gateway_{name}"])
        return found

    def round_trip() -> None:
        made = [opened(first, streams, ttl=8, **kinds[n % 3]) for n in range(12)]
        for stream in made:
            command(second, "POST", stream, "/begin")
        paths = [stream["events"] for stream in made] * 400 + [f"/views/{streams.log.view}/events?where=n%3E1"] * 200

        async def both() -> None:
            # Each stream has connections on both gateways, so it is in use until the end.
            await asyncio.gather(churn(first, paths[: len(paths) // 2]), churn(second, paths[len(paths) // 2 :]))

        asyncio.run(both())
        for stream in made[::2]:
            command(second, "DELETE", stream)

    def grown() -> dict[str, float]:
        """What there is more of than before; connections to Redis and Kafka are made when needed, and stay."""
        now = left()
        room = {name: MOST + 8 if name.startswith("descriptors") else 0 for name in now}
        more = {name: count for name, count in now.items() if count > before[name] + room[name]}
        if not more and (records := len(commands(streams))):
            more["commands"] = records
        return more

    kinds: list[dict[str, Any]] = [{"keys": ["k0", "k1"]}, {"where": "n > 2"}, {}]
    eventually(lambda: left()["queries"] == 0 and not commands(streams), "what other tests have left has ended")
    before = left()
    for _ in range(max(1, examples // 2)):
        round_trip()
    deadline = time.monotonic() + 60
    while (more := grown()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert more == {}
