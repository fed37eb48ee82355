"""The pub/sub link keeps its promises to those who wait for a channel."""

from __future__ import annotations

import asyncio

import redis

from tailrace.dev.redis_server import RedisServer
from tailrace.store.connection.address import Node
from tailrace.store.connection.servers import AsyncServers
from tailrace.store.read.channels import Channels

PATIENCE = 20.0


def test_who_waits_for_a_channel_that_is_left_and_joined_again_gets_it(redis_server: RedisServer, fresh: str) -> None:
    async def wait() -> None:
        channel = fresh.encode()
        channels = Channels(AsyncServers(redis_server.url), lambda *_: None, lambda: None)
        channels.join(channel)
        waiting = asyncio.create_task(channels.joined(channel))
        await asyncio.sleep(0)
        channels.leave(channel)
        channels.join(channel)
        running = asyncio.create_task(channels.run())
        await asyncio.wait_for(waiting, PATIENCE)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(wait())


def test_who_waits_for_a_channel_that_nobody_wants_any_more_waits_no_longer(
    redis_server: RedisServer, fresh: str
) -> None:
    async def wait() -> None:
        channel = fresh.encode()
        channels = Channels(AsyncServers(redis_server.url), lambda *_: None, lambda: None)
        channels.join(channel)
        waiting = asyncio.create_task(channels.joined(channel))
        await asyncio.sleep(0)
        channels.leave(channel)
        await asyncio.wait_for(waiting, PATIENCE)

    asyncio.run(wait())


def test_a_link_that_breaks_as_it_is_stopped_stops(redis_server: RedisServer, fresh: str) -> None:
    class Breaking(Channels):
        async def _watch(self, node: Node) -> None:
            try:
                await super()._watch(node)
            finally:
                raise redis.ConnectionError("broken")

    async def stop() -> None:
        channels = Breaking(AsyncServers(redis_server.url), lambda *_: None, lambda: None)
        channels.join(fresh.encode())
        running = asyncio.create_task(channels.run())
        await asyncio.wait_for(channels.joined(fresh.encode()), PATIENCE)
        running.cancel()
        await asyncio.wait({running}, timeout=PATIENCE)
        assert running.cancelled()

    asyncio.run(stop())
