"""One pool of connections serves a whole gateway, and no crowd of commands delays what others ask."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import redis

from tailrace.contracts.catalog import CatalogFeed
from tailrace.dev.redis_server import RedisServer
from tailrace.store.connection.servers import MOST, AsyncServers
from tailrace.store.layout.feed_keys import FeedPlace
from tailrace.store.read.feed_histories import FeedHistories
from tailrace.store.read.reader import Reader
from tailrace.store.read.restricted import RestrictedUsers
from tailrace.store.read.revocations import Revocations
from tailrace.store.read.tickets import Tickets

PATIENCE = 20.0
PLACE = FeedPlace(CatalogFeed("f", "f", "id", 1, 1, (), (), {}), 0, "0123abcd")


def connections(server: RedisServer, name: str) -> int:
    found = cast(Sequence[dict[str, Any]], redis.Redis.from_url(server.url).client_list())
    return sum(client["name"] == name for client in found)


def test_everything_that_a_gateway_asks_goes_over_the_same_connection(redis_server: RedisServer, fresh: str) -> None:
    async def go() -> int:
        servers = AsyncServers(f"{redis_server.url}?client_name={fresh}")
        await Reader(servers, fresh).ping()
        assert await Tickets(servers, fresh).take("unknown") is None
        assert not await RestrictedUsers(servers, fresh).includes("a", "orders")
        assert await Revocations(servers, fresh).all() == {}
        await FeedHistories(servers, fresh, "g1").listen(PLACE, b"a")
        found = connections(redis_server, fresh)
        await servers.close()
        return found

    assert asyncio.run(go()) == 1
    assert connections(redis_server, fresh) == 0, "whoever made them closes them for all"


def test_a_crowd_of_reads_delays_no_ticket_revocation_or_registration(redis_server: RedisServer, fresh: str) -> None:
    async def go() -> None:
        servers = AsyncServers(redis_server.url)
        async with AsyncExitStack() as crowd:
            for _ in range(MOST):
                await crowd.enter_async_context(servers.at(b"any"))
            read = asyncio.create_task(Reader(servers, fresh).ping())
            async with asyncio.timeout(PATIENCE):
                await Tickets(servers, fresh).take("unknown")
                await RestrictedUsers(servers, fresh).includes("a", "orders")
                await Revocations(servers, fresh).all()
                await FeedHistories(servers, fresh, "g1").listen(PLACE, b"a")
            assert not read.done(), "another read waits for one of the crowd"
        async with asyncio.timeout(PATIENCE):
            await read
        await servers.close()

    asyncio.run(go())


def test_commands_wait_where_a_url_allows_few_connections(redis_server: RedisServer, fresh: str) -> None:
    async def go() -> int:
        servers = AsyncServers(f"{redis_server.url}?client_name={fresh}&max_connections=2")
        reader, tickets = Reader(servers, fresh), Tickets(servers, fresh)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(reader.ping() for _ in range(100)), *(tickets.take("unknown") for _ in range(100)))
        found = connections(redis_server, fresh)
        await servers.close()
        return found

    assert 1 <= asyncio.run(go()) <= 2
