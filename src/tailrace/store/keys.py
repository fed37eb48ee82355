"""The names of everything Tailrace keeps in Redis.

All keys of one changelog partition share the hash tag `{view:partition}`, so that one script stays on one
node of a cluster:

    tailrace:movies:catalog                              hash    record key of the catalog topic → JSON
    tailrace:movies:{rating-averages:0}:rows             hash    key → generation version offset timestamp json
    tailrace:movies:{rating-averages:0}:gone             hash    key → generation version offset timestamp
    tailrace:movies:{rating-averages:0}:position         hash    lineage, offset, target
    tailrace:movies:{rating-averages:0}:changes:<lineage>:<key>    channel, one message per accepted change
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one partition of a view, and the channels of its rows."""

    rows: bytes
    gone: bytes
    position: bytes
    channels: bytes

    def channel(self, lineage: str, key: bytes) -> bytes:
        """The pub/sub channel of one row: who listens to one changelog hears nothing of another."""
        return self.channels + lineage.encode() + b":" + key


def partition_keys(prefix: str, view: str, partition: int) -> PartitionKeys:
    """The keys of one partition of a view."""
    stem = f"{prefix}:{{{view}:{partition}}}:".encode()
    return PartitionKeys(
        rows=stem + b"rows", gone=stem + b"gone", position=stem + b"position", channels=stem + b"changes:"
    )


def catalog_key(prefix: str) -> str:
    """The hash that the catalog topic is copied to; also the channel that says it has changed."""
    return f"{prefix}:catalog"


def default_prefix(app: str) -> str:
    """The prefix of all keys of an app."""
    return f"tailrace:{app}"
