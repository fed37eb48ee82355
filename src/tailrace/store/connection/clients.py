"""Clients of one server: the only place that opens them."""

from __future__ import annotations

from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tailrace.store.connection.address import Node

# What a client raises while its server can't be used, and for mistakes of ours.
ERRORS = (redis.RedisError, OSError)

# Redis answers in well under a millisecond: one that needs seconds is as good as away. A batch may take longer.
_TIMEOUT = 5.0
_CONNECT_TIMEOUT = 3.0
_BATCH_TIMEOUT = 10.0
_BATCH_CONNECT_TIMEOUT = 5.0
# Where everything is, is asked while records wait.
_ASK_TIMEOUT = 1.0


def client(node: Node) -> redis.Redis:
    """For the materializer, which waits and tries again by itself."""
    return redis.Redis.from_url(
        node.url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=_BATCH_TIMEOUT,
        socket_connect_timeout=_BATCH_CONNECT_TIMEOUT,
        health_check_interval=0,
    )


def async_client(node: Node) -> redis.asyncio.Redis:
    """For the gateway. One retry, for a pooled connection that has died meanwhile; a timeout is not repeated."""
    return redis.asyncio.Redis.from_url(
        node.url,
        retry=AsyncRetry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        socket_timeout=_TIMEOUT,
        socket_connect_timeout=_CONNECT_TIMEOUT,
    )


def adviser(node: Node) -> redis.Redis:
    """For asking where everything is."""
    return redis.Redis.from_url(
        node.url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=_ASK_TIMEOUT,
        socket_connect_timeout=_ASK_TIMEOUT,
        protocol=2,
    )


def async_adviser(node: Node) -> redis.asyncio.Redis:
    """For asking where everything is."""
    return redis.asyncio.Redis.from_url(
        node.url,
        retry=AsyncRetry(NoBackoff(), 0),
        socket_timeout=_ASK_TIMEOUT,
        socket_connect_timeout=_ASK_TIMEOUT,
        protocol=2,
    )


def link(node: Node) -> Any:
    """A plain connection for pub/sub, still to be connected."""
    pool = redis.asyncio.ConnectionPool.from_url(
        node.url, socket_timeout=_TIMEOUT, socket_connect_timeout=_CONNECT_TIMEOUT
    )
    # Also where the URL says otherwise: with protocol 3, messages come between other replies.
    pool.connection_kwargs["protocol"] = 2
    return cast(Any, pool).make_connection()


def command(client: Any, *words: str) -> Any:
    """Send a command word by word, so that the client library does not shape the answer."""
    return client.execute_command(*words)
