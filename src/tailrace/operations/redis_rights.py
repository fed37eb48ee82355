"""The least rights in Redis that each process of an app needs, as rules of `ACL SETUSER`. No I/O.

All rules are known to Redis 6.2, to later ones and to Valkey. A script needs its own command, a right on every key that
it is given, and a right on each command that it calls. Redis takes every key of a script for one that is written, so no
key is read-only here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.declarations.app import App
from tailrace.operations.kafka_rights import GATEWAY, MATERIALIZER, OPERATOR
from tailrace.store.layout.keys import default_prefix

# Commands that rows, their queries and the copy of the catalog need of a materializer.
_WRITES_VIEWS = """
    evalsha eval script|load multi exec publish hmget hget hgetall hset hdel hlen hscan exists unlink pexpire
    hsetnx rename zadd zrem zscore zrangebyscore
    hincrby zcard zrange zremrangebyscore zscan sadd srem smembers pexpireat pttl
"""
_WRITES_FEEDS = """
    evalsha eval script|load multi exec publish hmget hget hgetall hset hdel unlink pexpire pexpireat time
    xadd xlen xrange xrevrange xtrim zadd zcard zrem zrangebyscore zremrangebyrank zremrangebyscore zrevrange
    zrevrangebyscore zscore
"""
# What every gateway needs: the catalog, streams, revocations, tickets, and its pub/sub link.
_SERVES = """
    ping subscribe unsubscribe publish evalsha eval multi exec hmget hget hgetall hset hdel get set del exists pttl
    pexpire pexpireat
"""
_SERVES_VIEWS = "hscan zrangebyscore"
_SERVES_FEEDS = "time unlink zadd zscore zrevrangebyscore xrange xrevrange xtrim"
# For `status` and `revoke`.
_OPERATES = "hmget hgetall evalsha eval exists hset hdel pexpireat publish"

# A Cluster says where everything is; gateways also ask whether the node of their link is well.
_CLUSTER = {MATERIALIZER: "cluster|slots", GATEWAY: "cluster|slots cluster|info", OPERATOR: "cluster|slots"}


def redis_rights(app: App, process: str, *, prefix: str = "", cluster: bool = False) -> list[str]:
    """The rules of a process's user, without login; none if the process does not connect to Redis.

    prefix: as for `--prefix`. cluster: whether Redis is a Cluster.
    """
    stem = _literal(prefix or default_prefix(app.name))
    # Keys, and then channels, of rows, queries and events begin with the partition.
    held, told = {
        MATERIALIZER: (("catalog", "freshness", "{*"), ("catalog", "{*")),
        GATEWAY: (("*",), ("*",)),
        OPERATOR: (("freshness", "revoked", "{*"), ("revoked",)),
    }.get(process, ((), ()))
    if not held:
        return []
    commands = _sorted(_commands(app, process, cluster=cluster))
    keys = (f"~{stem}:{name}" for name in held)
    channels = (f"&{stem}:{name}" for name in told)
    return ["resetkeys", *keys, "resetchannels", *channels, "-@all", *(f"+{command}" for command in commands)]


def _commands(app: App, process: str, *, cluster: bool) -> Iterator[str]:
    if cluster:
        yield _CLUSTER[process]
    if process == OPERATOR:
        yield _OPERATES
    if process == GATEWAY:
        yield _SERVES
    if app.views:
        yield {MATERIALIZER: _WRITES_VIEWS, GATEWAY: _SERVES_VIEWS, OPERATOR: ""}[process]
    if app.feeds:
        yield {MATERIALIZER: _WRITES_FEEDS, GATEWAY: _SERVES_FEEDS, OPERATOR: ""}[process]


def _sorted(texts: Iterable[str]) -> list[str]:
    return sorted({command for text in texts for command in text.split()})


def _literal(prefix: str) -> str:
    """A prefix as a pattern that matches nothing else."""
    return "".join(f"\\{one}" if one in "*?[]\\" else one for one in prefix)
