"""Whether the gateway can answer for every key of the app."""

from __future__ import annotations

from typing import Any

from tailrace.gateway.gateway import Gateway
from tailrace.store.reader import Unavailable


async def readiness(gateway: Gateway) -> dict[str, Any]:
    """Ready where Redis answers, the catalog is there, every partition is whole and the pub/sub link is up."""
    reasons = []
    views: dict[str, Any] = {}
    feeds: dict[str, Any] = {}
    known = gateway.known
    partitions = known.partitions()
    try:
        await gateway.reader.ping()
        stored = await gateway.reader.stored(partitions) if partitions else []
    except Unavailable as error:
        reasons.append(f"Redis is unavailable: {str(error)[:200] or type(error).__name__}")
        stored = []
    if known.problem is not None:
        reasons.append(known.problem)
    elif not known.loaded:
        reasons.append(f"Redis holds no catalog of app {gateway.app} yet")
    if not gateway.channels.up:
        reasons.append("the pub/sub link is down")
    if gateway.hub.draining:
        reasons.append("the gateway shuts down")
    for (name, partition, _), found in zip(partitions, stored, strict=False):
        kind, shown = ("view", views) if name in known.views else ("feed", feeds)
        generation = known.views[name].generation if name in known.views else known.feeds[name].entry.generation
        shown.setdefault(name, {"generation": generation, "partitions": {}})["partitions"][str(partition)] = {
            "offset": found.offset,
            "whole": found.whole,
            "generation": found.generation,
        }
        if not found.whole:
            reached = "nothing" if found.offset is None else f"offset {found.offset} of {found.target}"
            reasons.append(f"{kind} {name}, partition {partition} is being restored: the store holds {reached}")
    return {"ready": not reasons, "reasons": reasons, "views": views, "feeds": feeds}
