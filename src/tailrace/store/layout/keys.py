"""The names of everything Tailrace keeps in Redis.

All keys of one changelog partition share the hash tag `{view:partition}`, so that a script finds them on one
node of a cluster:

    tailrace:movies:catalog                              hash    record key of the catalog topic → JSON
    tailrace:movies:freshness                            hash    view/materializer → its report: see `freshness`
    tailrace:movies:stream:<id>                          hash    revision, stream; and channel, one message per change
    tailrace:movies:streams                              string  a gateway looks for streams that Redis has lost
    tailrace:movies:{rating-averages:0}:rows             hash    key → generation version offset timestamp json
    tailrace:movies:{rating-averages:0}:gone             hash    key → generation version offset timestamp
    tailrace:movies:{rating-averages:0}:expiries         zset    key → when its row expires, in ms since 1970
    tailrace:movies:{rating-averages:0}:position         hash    lineage, offset, target, generation, …
    tailrace:movies:{rating-averages:0}:changes:<lineage>:<key>    channel, one message per accepted change
    tailrace:movies:{rating-averages:0}:queries          set     queries that the partition is evaluated for
    tailrace:movies:{rating-averages:0}:query:<query>    hash    lineage, generation, clock, sent, …
    tailrace:movies:{rating-averages:0}:matches:<query>  zset    key → offset of its row
    tailrace:movies:{rating-averages:0}:left:<query>     zset    key → offset at which it left
    tailrace:movies:{rating-averages:0}:queries:<lineage>:<query>  channel, one message per row that comes or goes

The digest of its predicate names a query. Its keys expire with its last stream. `sent` is the number of its
last message. `horizon` is the offset after which the query still notes everything that left, and `ready` the
offset at which it knew all its members. It was not evaluated between `until` and `ready`.

While the pipeline makes the next build of a view, its rows wait in `next-rows`, `next-gone` and
`next-expiries`. `old-rows` holds keys of earlier builds, until each that the served build lacks has a
tombstone in the changelog.

The position's `generation` is that of `rows`, and `next` that of `next-rows`. `dropped` is the latest build
that was given up while its rows were kept back. A partition is whole from its `target` on. Tombstones up to
`pruned` may be forgotten; `mark` says how far that moves next: see `prune.lua`. `as-of` is when the partition
was complete: see `materializer/views/as_of.py`.

Keys of feeds are in `feed_keys`, of access in `read/tickets`, `read/revocations` and `read/restricted`, of
listings in `read/page_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one partition of a view, and the channels of its rows."""

    position: bytes
    rows: bytes
    gone: bytes
    expiries: bytes
    next_rows: bytes
    next_gone: bytes
    next_expiries: bytes
    old_rows: bytes
    channels: bytes

    @property
    def all(self) -> list[bytes]:
        """Every key, in the order that scripts expect."""
        served = [self.position, self.rows, self.gone, self.expiries]
        return [*served, self.next_rows, self.next_gone, self.next_expiries, self.old_rows]

    def channel(self, lineage: str, key: bytes) -> bytes:
        """The pub/sub channel of one row. Each changelog has its own: a listener hears nothing of another one."""
        return self.channels + lineage.encode() + b":" + key


@dataclass(frozen=True, slots=True)
class QueryKeys:
    """The keys of one query in a partition of a view, in the order that scripts expect."""

    query: bytes
    matches: bytes
    left: bytes


class QueryNames:
    """The keys of queries in one partition of a view."""

    def __init__(self, prefix: str, view: str, partition: int) -> None:
        self._stem = _stem(prefix, view, partition)
        self.index = self._stem + b"queries"

    def of(self, query: str) -> QueryKeys:
        """The keys of one query."""
        name = query.encode()
        return QueryKeys(self._stem + b"query:" + name, self._stem + b"matches:" + name, self._stem + b"left:" + name)

    def channel(self, lineage: str, query: str) -> bytes:
        """The pub/sub channel of one query."""
        return self.index + f":{lineage}:{query}".encode()


def partition_keys(prefix: str, view: str, partition: int) -> PartitionKeys:
    """The keys of one partition of a view."""
    stem = _stem(prefix, view, partition)
    return PartitionKeys(
        position=stem + b"position",
        rows=stem + b"rows",
        gone=stem + b"gone",
        expiries=stem + b"expiries",
        next_rows=stem + b"next-rows",
        next_gone=stem + b"next-gone",
        next_expiries=stem + b"next-expiries",
        old_rows=stem + b"old-rows",
        channels=stem + b"changes:",
    )


def _stem(prefix: str, view: str, partition: int) -> bytes:
    return f"{prefix}:{{{view}:{partition}}}:".encode()


def catalog_key(prefix: str) -> str:
    """The hash that holds a copy of the catalog topic; also the channel that announces changes."""
    return f"{prefix}:catalog"


def freshness_key(prefix: str) -> str:
    """The hash of what materializers report of their views and feeds."""
    return f"{prefix}:freshness"


def stream_key(prefix: str, stream: str) -> bytes:
    """The hash of a client's stream; also the channel that announces changes."""
    return f"{prefix}:stream:{stream}".encode()


def search_key(prefix: str) -> bytes:
    """The key that says that a gateway looks for lost streams, or has just done so."""
    return f"{prefix}:streams".encode()


def default_prefix(app: str) -> str:
    """The prefix of all keys of an app."""
    return f"tailrace:{app}"
