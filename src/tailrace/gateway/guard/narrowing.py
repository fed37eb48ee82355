"""What a client follows by its rights: no more than it may see, also from an earlier position and by another token."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from tailrace.access.extents import exact_key
from tailrace.access.filters import both
from tailrace.gateway.catalog import Known as Catalog
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.guard.access import Identity as Known
from tailrace.gateway.guard.allowed import Allowing, known, query_only
from tailrace.gateway.live.positions import OTHER_RIGHTS
from tailrace.gateway.live.requests import Follow, FollowFeed, FollowKeys, FollowQuery
from tailrace.gateway.problems import Problem, refusal
from tailrace.queries import QueryError, parse
from tailrace.store.connection.outages import Unavailable


class Restricted(Protocol):
    """Remembers who was shown a part of a view: `tailrace.store.read.restricted.Restricted`."""

    async def add(self, user: str, view: str) -> None:
        """Remember that a user is shown a part of a view."""

    async def includes(self, user: str, view: str) -> bool:
        """Whether a user was shown a part of a view lately."""


class Narrowing(Allowing):
    """Says what clients follow that ask for something. Every method raises a Problem for what they may not."""

    def __init__(self, catalog: Catalog, restricted: Restricted) -> None:
        super().__init__(catalog)
        self._restricted = restricted

    async def narrowed(self, identity: Known | None, follow: Follow) -> Follow:
        """What a client follows that asks for this: no more than it may see.

        Keys under a filter are a query, so that rows come and go by it. A position that was had under a filter is worth
        nothing: rows that the client could not see then are older than it.
        """
        if isinstance(follow, FollowFeed):
            self.may_follow_feed(identity, follow.feed, follow.client)
        elif isinstance(follow, FollowQuery):
            if not await self.resumable(identity, follow):
                follow = replace(follow, position=OTHER_RIGHTS)
            return await self._narrowed_query(identity, follow)
        elif isinstance(follow, FollowKeys):
            self.may_ask(identity, follow.view, [key.encode() for key in follow.keys])
            if not await self.resumable(identity, follow):
                follow = replace(follow, position=OTHER_RIGHTS, positions={})
            if self.seen_filter(identity, follow.view) is not None:
                return await self._narrowed_query(identity, as_query(follow, self.view(identity, follow.view)))
        return follow

    async def resumable(self, identity: Known | None, follow: FollowKeys | FollowQuery) -> bool:
        """Whether the position that a client brings, if any, says what it has seen of what it may see.

        One that was had under a filter does not, neither under another one nor without: see docs/decisions/0022. So
        it is noted who is shown a part.
        """
        user, view = known(identity).user, follow.view
        brings = bool(follow.position or (isinstance(follow, FollowKeys) and follow.positions))
        # Some keys are a part for who asks for all rows, and not for who asks for keys.
        parts = [(view, self.seen_filter(identity, view))]
        if isinstance(follow, FollowQuery):
            parts.append((f"{view}?", self.row_filter(identity, view)))
        try:
            for name, filter in parts:
                if filter is not None:
                    await self._restricted.add(user, name)
                    return not brings
            return not brings or not any([await self._restricted.includes(user, name) for name, _ in parts])
        except Unavailable:
            return not brings

    def changed(self, follow: Follow, before: Known | None, after: Known | None) -> bool:
        """Whether a client that follows this sees other rows by another token; raises a Problem where it sees none.

        What a stream follows is asked about, not the stream.
        """
        now = self._extent(after, follow)
        try:
            return now != self._extent(before, follow)
        except Problem:
            return True

    async def _narrowed_query(self, identity: Known | None, follow: FollowQuery) -> FollowQuery:
        restriction = self.row_filter(identity, follow.view)
        if restriction is None:
            return follow
        columns = self.view(identity, follow.view).columns
        try:
            if follow.where is None:
                return replace(follow, where=restriction.text)
            # The text of a client is read by itself, so that none of it can end the filter; long ones take a while.
            asked = await asyncio.to_thread(parse, follow.where, columns)
            return replace(follow, where=both(asked, restriction).text)
        except QueryError as error:
            raise Problem(
                400, "unusable query", expected=error.expected, got=error.got, at=error.at, remedy=error.remedy
            ) from None

    def _extent(self, identity: Known | None, follow: Follow) -> object:
        """What tells the rows that a client gets from those of another; None for all that it asks for.

        Under a filter it is also whose filter it is: that a user is shown a part is noted when a subscription begins.
        """
        if isinstance(follow, FollowKeys):
            self.may_ask(identity, follow.view, [key.encode() for key in follow.keys])
            filter = self.seen_filter(identity, follow.view)
        elif isinstance(follow, FollowQuery):
            filter = self.row_filter(identity, follow.view)
        elif isinstance(follow, FollowFeed):
            self.may_follow_feed(identity, follow.feed, follow.client)
            filter = None
        else:
            raise TypeError(f"expected what a stream follows, got {follow!r}")
        return None if filter is None else (known(identity).user, filter.text)


def as_query(follow: FollowKeys, view: KnownView) -> FollowQuery:
    """The query that gives the rows of these keys, where it is not certain that they may be seen."""
    terms = [exact_key(key, view.key) for key in follow.keys]
    if None in terms:
        raise refusal(query_only(follow.view, "keys of a type that no query compares"))
    return FollowQuery(follow.id, follow.view, " or ".join(term for term in terms if term), follow.position)
