"""Whether the gateway can answer for every key of the app, and how fresh what it answers is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tailrace.contracts.catalog import ViewProgress
from tailrace.contracts.freshness import Freshness, Report, freshness, why_stale
from tailrace.gateway.catalog import ServedCatalog
from tailrace.gateway.gateway import Gateway
from tailrace.store.connection.outages import Unavailable

_UNKNOWN = ViewProgress("", 0, -1, 0)


async def readiness(gateway: Gateway) -> dict[str, Any]:
    """Ready if Redis answers, the catalog is there, every partition is whole and the pub/sub link is up.

    `degraded` says which views may be stale, as far as catalog and store know. The gateway is ready nevertheless.
    """
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
    if not gateway.link.up:
        reasons.append("the pub/sub link is down" + (f": {gateway.link.problem}" if gateway.link.problem else ""))
    if gateway.connections.draining:
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
    fresh = all_fresh(known, await _reports(gateway) if stored else {}, int(time.time() * 1000))
    for name, one in fresh.items():
        if (shown_of := views.get(name) or feeds.get(name)) is not None:
            shown_of["delay"] = asdict(one.delay) if one.delay is not None else None
            shown_of["behind_seconds"] = one.behind_seconds
    degraded = all_degraded(known, fresh)
    # Rows and feeds are served without Kafka; queries, streams and events in are not.
    kafka = gateway.kafka.problems()
    answer = {"ready": not reasons, "reasons": reasons, "degraded": degraded, "kafka": kafka}
    if gateway.certificate is not None:
        certificate = gateway.certificate
        answer["certificate"] = {"ends": certificate.ends.isoformat(), "problems": certificate.problems}
    return {**answer, "views": views, "feeds": feeds}


def all_fresh(known: ServedCatalog, reports: Mapping[str, Sequence[Report]], now: int) -> dict[str, Freshness]:
    """How fresh every view and feed of the app is at a time in ms."""
    found = {}
    for name, view in known.views.items():
        found[name] = freshness(reports.get(name, ()), view.lineage, view.generation, now)
    for name, feed in known.feeds.items():
        found[name] = freshness(reports.get(name, ()), feed.lineage, feed.entry.generation, now)
    return found


def all_degraded(known: ServedCatalog, fresh: Mapping[str, Freshness]) -> list[dict[str, str]]:
    """Every reason why rows of a view, or events of a feed, may be stale."""
    said = {name: known.progress.get(name, _UNKNOWN) for name in fresh}
    return [
        {"view": name, "reason": reason}
        for name, one in fresh.items()
        for reason in why_stale(said[name].mode, said[name].degraded, one)
    ]


async def _reports(gateway: Gateway) -> Mapping[str, Sequence[Report]]:
    try:
        return await gateway.reader.reports()
    except Unavailable:
        # In a cluster, another server has the reports: rows may be readable without them.
        return {}
