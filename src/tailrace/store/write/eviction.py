"""Eviction: a Redis that may drop keys to make room loses rows and keeps their position, and nobody would notice."""

from __future__ import annotations

from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.writer import StoreWriter


def evicts(writer: StoreWriter, keys: list[bytes]) -> str | None:
    """What is wrong with the servers that hold these keys; None where nothing is, or they do not say."""
    for group in writer.together(keys):
        try:
            with writer.at(keys[group[0]]) as redis:
                info = redis.info("memory")
        except Unavailable as error:
            if error.code != "NOPERM":
                raise
            continue
        policy = str(info.get("maxmemory_policy", ""))
        # The other policies drop only keys that have a time to live, which rows have not.
        if policy.startswith("allkeys") and int(info.get("maxmemory", 0)) > 0:
            return (
                f"Redis drops rows when its memory is full: expected maxmemory-policy noeviction, got {policy}. "
                "Set noeviction, and empty this Redis if it was full: it is filled again"
            )
    return None
