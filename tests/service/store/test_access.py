"""Tickets and revocations in a real Redis: had once, kept for a time, and nothing left behind."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import redis as redis_client

from tailrace.dev.redis_server import RedisServer
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.read.restricted import KEPT, RestrictedUsers
from tailrace.store.read.revocations import Revocations, revoke
from tailrace.store.read.tickets import Tickets


def test_of_many_who_take_a_ticket_at_once_one_gets_it(redis_server: RedisServer, fresh: str) -> None:
    async def go() -> None:
        servers = [AsyncServers(redis_server.url) for _ in range(4)]
        gateways = [Tickets(one, fresh) for one in servers]
        await gateways[0].put("made up", b"claims", 30)
        found = await asyncio.gather(*(one.take("made up") for one in gateways for _ in range(5)))
        assert sorted(one for one in found if one is not None) == [b"claims"]
        await gateways[0].put("short", b"claims", 0.001)
        await asyncio.sleep(0.05)
        assert await gateways[1].take("short") is None
        for one in servers:
            await one.close()

    asyncio.run(go())
    assert not list(redis_client.Redis.from_url(redis_server.url).scan_iter(f"{fresh}:*"))


def test_who_was_shown_a_part_is_remembered_for_a_time(redis_server: RedisServer, fresh: str) -> None:
    async def go() -> list[bool]:
        servers = AsyncServers(redis_server.url)
        restricted = RestrictedUsers(servers, fresh)
        await restricted.add("a", "orders")
        found = [await restricted.includes(*asked) for asked in (("a", "orders"), ("b", "orders"), ("a", "names"))]
        await servers.close()
        return found

    assert asyncio.run(go()) == [True, False, False]
    client = redis_client.Redis.from_url(redis_server.url)
    left = list(client.scan_iter(f"{fresh}:*"))
    assert len(left) == 1 and 0 < client.pttl(left[0]) <= KEPT * 1000
    client.delete(*left)


def test_revocations_are_kept_for_their_time_and_only_reach_further(redis_server: RedisServer, fresh: str) -> None:
    client = redis_client.Redis.from_url(redis_server.url)
    listener: Any = cast(Any, client).pubsub(ignore_subscribe_messages=True)
    listener.subscribe(f"{fresh}:revoked")
    listener.get_message(timeout=5)
    now = int(time.time() * 1000)

    async def put(**revoked: tuple[int, int]) -> dict[str, tuple[int, int]]:
        servers = AsyncServers(redis_server.url)
        store = Revocations(servers, fresh)
        await store.put(revoked)
        found = await store.all()
        await servers.close()
        return found

    revoke(redis_server.url, fresh, "sub:a", 60)
    assert client.hget(f"{fresh}:revoked", "sub:a") is not None
    message = listener.get_message(timeout=5)
    assert message is not None and message["data"] == b"1"
    found = asyncio.run(put(old=(1, now - 1), b=(now, now + 5_000), c=(now, now + 600_000)))
    assert set(found) == {"sub:a", "b", "c"} and found["b"] == (now, now + 5_000)
    assert asyncio.run(put(b=(now - 10, now + 9_000)))["b"] == (now, now + 9_000)
    assert asyncio.run(put(b=(now - 10, now + 1)))["b"] == (now, now + 9_000)
    assert 590_000 < client.pttl(f"{fresh}:revoked") <= 600_000
    client.hset(f"{fresh}:revoked", mapping={"over": f"{now - 9} {now - 5}", "broken": "nonsense"})
    assert "broken" not in asyncio.run(put())
    assert set(asyncio.run(put(d=(now, now + 1_000)))) == {"sub:a", "b", "c", "d"}
    listener.close()
    client.delete(f"{fresh}:revoked")
