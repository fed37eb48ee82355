"""What is done for all followed queries now and then: find what pub/sub has lost, and bound what is held."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.gateway.live.queries.repair import Mending
from tailrace.gateway.live.queries.watched import FollowedQuery
from tailrace.store.read.matches import Matches

# What all queries together may hold: members' offsets, and bytes of updates for clients that are behind.
MOST_HELD = 1_000_000
MOST_RECENT = 256 * 1024 * 1024


async def find_lost(parts: Sequence[Mending], matches: Matches, late: float) -> None:
    """Ask the store for the number of each query's last message, and read where it did not come within `late` seconds.

    Raises Unavailable.
    """
    asked = [(p.followed.view.name, p.partition, p.followed.view.lineage, p.followed.query) for p in parts]
    taken = [part.course.number for part in parts]
    heads = await matches.heads(asked) if asked else []
    behind = []
    for part, head, number in zip(parts, heads, taken, strict=True):
        if head is None or not part.course.live:
            continue
        if head.number < number:
            # The store was rolled back, and numbers what comes as it did before.
            part.read()
        elif head.number > part.course.number:
            behind.append((part, head.number))
    if behind:
        await asyncio.sleep(late)
    for part, number in behind:
        if part.course.live and number > part.course.number:
            part.read()


def bound(followed: Sequence[FollowedQuery], most_held: int = MOST_HELD, most_recent: int = MOST_RECENT) -> None:
    """Let the largest queries forget what all of them together hold too much of."""
    members = sum(one.held_count() for one in followed)
    for one in sorted(followed, key=FollowedQuery.held_count, reverse=True):
        if members <= most_held:
            break
        members -= one.held_count()
        one.drop_held()
    recent = sum(one.recent.bytes for one in followed)
    for one in sorted(followed, key=lambda one: one.recent.bytes, reverse=True):
        if recent <= most_recent:
            break
        recent -= one.recent.bytes
        one.forget_recent()
