"""The names of everything that Redis holds of a feed.

As with a view, all keys of one changelog partition share the hash tag `{feed:partition}`:

    …:{notices:0}:position     hash    lineage, offset, target, generation; since, floor, history, opens
    …:{notices:0}:marks        hash    source topic and partition → highest version taken
    …:{notices:0}:taken        zset    identity of an event → its offset, if marks can't tell a replay
    …:{notices:0}:times        zset    offset → when the store reached it, in ms since 1970
    …:{notices:0}:listening    zset    client → when its registration expires, in ms since 1970
    …:{notices:0}:leases       hash    client → gateway expiry gateway expiry …
    …:{notices:0}:from         hash    client → offset after which its history is complete
    …:{notices:0}:recent       zset    client → offset of its last event, if events are always kept
    …:{notices:0}:history:<name>:<client>     stream  <offset>-<version> → generation version offset timestamp json
    …:{notices:0}:changes:<lineage>:<client>  channel, a message per event while the client listens

The position's `since` is the offset after which events are kept: a restore reads the records before it only
to know replays. `floor` is the offset up to which all events of a client may have been dropped. `history`
names the restore that the histories belong to: nobody reads those of an earlier one, and they expire. `opens`
is when the restore may begin to read. The version is the source offset plus one: Redis takes no id 0-0. A
message holds the offset of the client's previous event, and the event: see `feed.lua`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.contracts.catalog import CatalogFeed

# For how many seconds a registration lasts at least, and how often a gateway refreshes it.
LEASE = 15.0
REFRESH = LEASE / 3


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """One partition of a feed, as the catalog names it."""

    feed: CatalogFeed
    partition: int
    lineage: str


@dataclass(frozen=True, slots=True)
class FeedKeys:
    """The keys of one partition of a feed."""

    position: bytes
    marks: bytes
    taken: bytes
    times: bytes
    listening: bytes
    leases: bytes
    starts: bytes
    recent: bytes
    histories: bytes
    channels: bytes

    def history(self, begun: str, client: bytes) -> bytes:
        """The events of one client."""
        return b"%b%b:%b" % (self.histories, begun.encode(), client)

    def channel(self, lineage: str, client: bytes) -> bytes:
        """The pub/sub channel of one client. Each changelog has its own: a listener hears nothing of another one."""
        return b"%b%b:%b" % (self.channels, lineage.encode(), client)


def feed_keys(prefix: str, feed: str, partition: int) -> FeedKeys:
    """The keys of one partition of a feed."""
    stem = f"{prefix}:{{{feed}:{partition}}}:".encode()
    return FeedKeys(
        position=stem + b"position",
        marks=stem + b"marks",
        taken=stem + b"taken",
        times=stem + b"times",
        listening=stem + b"listening",
        leases=stem + b"leases",
        starts=stem + b"from",
        recent=stem + b"recent",
        histories=stem + b"history:",
        channels=stem + b"changes:",
    )
