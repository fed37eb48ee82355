"""What the rights of a token allow: which views, feeds and topics, and how much of what a client follows.

What a client may not have is refused before any code looks whether it exists, so that no answer gives that away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from tailrace.access.extents import Extent, Unfit, exact_key, extent
from tailrace.access.identity import Identity
from tailrace.access.refused import forbidden, unauthorized
from tailrace.access.rights import Grant, Kind
from tailrace.access.telling import tell
from tailrace.contracts.catalog import Column
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.guard.access import Access
from tailrace.gateway.live.positions import OTHER_RIGHTS
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.requests import Follow, FollowFeed, FollowKeys, FollowQuery
from tailrace.gateway.problems import Problem, no_catalog, refusal
from tailrace.queries import Predicate, QueryError
from tailrace.store.connection.outages import Unavailable

# The key of a feed that does not exist: a refusal must not give that away.
_ANY_CLIENT = (Column("client", "string"),)


class PartialViewers(Protocol):
    """Remembers which users were shown a part of a view: `tailrace.store.read.restricted.RestrictedUsers`."""

    async def add(self, user: str, view: str) -> None:
        """Remember that a user is shown a part of a view."""

    async def includes(self, user: str, view: str) -> bool:
        """Whether a user was shown a part of a view lately."""


class Authorizer(Access):
    """Decides by the rights of a client's token."""

    on = True

    def __init__(self, catalog: ServedCatalog, predicates: Predicates, viewers: PartialViewers) -> None:
        super().__init__(catalog, predicates)
        self._viewers = viewers

    def may_know(self, identity: Identity | None, kind: Kind, name: str) -> None:
        if not known(identity).rights.names(kind, name):
            raise _not_allowed(kind, name)

    def known_names(self, identity: Identity | None, kind: Kind, names: Iterable[str]) -> list[str]:
        rights = known(identity).rights
        return sorted(name for name in names if rights.names(kind, name))

    def may_follow_keys(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        self.may_ask(identity, view, keys)
        if self.seen_filter(identity, view) is not None:
            raise _query_only(view, "keys, whose rows may come to be others")

    def may_ask(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        extent = self._extent_of(identity, view)
        for key in keys:
            if not extent.allows(key.decode()):
                raise _forbidden(
                    "key not allowed",
                    f"a key of view {view} that the token allows",
                    key.decode()[:200],
                    "Ask for another key, or for a token with other rights.",
                )

    def allows_key(self, identity: Identity | None, view: str, key: bytes) -> bool:
        return self._extent_of(identity, view).allows(key.decode())

    def may_follow_feed(self, identity: Identity | None, feed: str, client: str) -> None:
        grant = known(identity).rights.feed(feed)
        if grant is not None and not self._catalog.loaded:
            raise no_catalog(self._catalog.problem)
        declared = self._catalog.feeds.get(feed)
        columns = _ANY_CLIENT if declared is None else declared.entry.key
        if grant is None or not _extent("feed", feed, grant, columns).allows(client):
            raise _not_allowed("feed", f"{feed} of {client[:200]}")

    def may_send(self, identity: Identity | None, topic: str) -> None:
        if not known(identity).rights.topic(topic):
            raise _not_allowed("topic", topic)

    def may_operate(self, identity: Identity | None) -> None:
        if not known(identity).rights.operations:
            raise _forbidden("not allowed", 'a token with "operations": true', "one without", "Or set --open metrics.")

    def row_filter(self, identity: Identity | None, view: str) -> Predicate | None:
        condition, seen = self._extent_of(identity, view), self.seen_filter(identity, view)
        if condition.patterns is None:
            return seen
        if condition.condition is None:
            raise _forbidden(
                "keys only",
                f"keys of view {view}: no query can say which of its rows the token allows",
                "a query",
                "Ask for keys.",
            )
        served = self.view(identity, view)
        keys = self._filter(served, condition.condition)
        if seen is None:
            return keys
        try:
            return self._predicates.known_both(seen, keys, served.columns)
        except QueryError as error:
            raise _unfit(view, error) from None

    def seen_filter(self, identity: Identity | None, view: str) -> Predicate | None:
        grant = self._grant(identity, view)
        return None if grant.where is None else self._filter(self.view(identity, view), grant.where)

    async def narrowed(self, identity: Identity | None, follow: Follow) -> Follow:
        """What a client follows if it asks for this: no more than it may see.

        Keys under a filter become a query, so that rows come and go by the filter. A position from under a
        filter is worth nothing: rows that the client could not see then are older than the position.
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

    async def resumable(self, identity: Identity | None, follow: FollowKeys | FollowQuery) -> bool:
        """Whether a client's position, if it has one, says what it has seen of what it may see.

        A position from under a filter does not, neither under another filter nor without one: see
        docs/decisions/0022. So users that are shown a part are remembered.
        """
        user, view = known(identity).user, follow.view
        brings = bool(follow.position or (isinstance(follow, FollowKeys) and follow.positions))
        # A right to some keys shows only a part to a client that asks for all rows, not to one that asks for keys.
        parts = [(view, self.seen_filter(identity, view))]
        if isinstance(follow, FollowQuery):
            parts.append((f"{view}?", self.row_filter(identity, view)))
        try:
            for name, filter in parts:
                if filter is not None:
                    await self._viewers.add(user, name)
                    return not brings
            return not brings or not any([await self._viewers.includes(user, name) for name, _ in parts])
        except Unavailable:
            return not brings

    def changed(self, follow: Follow, before: Identity | None, after: Identity | None) -> bool:
        """Whether a client that follows this sees other rows with another token. Raises a Problem if it sees none.

        For a stream, the caller asks about what is in it.
        """
        now = self._part(after, follow)
        try:
            return now != self._part(before, follow)
        except Problem:
            return True

    async def _narrowed_query(self, identity: Identity | None, follow: FollowQuery) -> FollowQuery:
        if self.row_filter(identity, follow.view) is None:
            return follow
        text, _ = await self.query(identity, self.view(identity, follow.view), follow.where)
        return replace(follow, where=text)

    def _part(self, identity: Identity | None, follow: Follow) -> object:
        """What the rows that a client gets depend on, to compare two tokens; None if it gets all that it asks for.

        Under a filter that includes the user: that a user is shown a part is noted when a subscription begins.
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

    def _grant(self, identity: Identity | None, view: str) -> Grant:
        grant = known(identity).rights.view(view)
        if grant is None:
            raise _not_allowed("view", view)
        return grant

    def _extent_of(self, identity: Identity | None, view: str) -> Extent:
        grant = self._grant(identity, view)
        return _extent("view", view, grant, self.view(identity, view).key)

    def _filter(self, view: ServedView, text: str) -> Predicate:
        try:
            return self._predicates.known(text, view.columns)
        except QueryError as error:
            raise _unfit(view.name, error) from None


def known(identity: Identity | None) -> Identity:
    """Who a client is. Raises a Problem if it has not said so."""
    if identity is None:
        raise refusal(unauthorized("no token", "a token", "none", "Send auth first."))
    return identity


def as_query(follow: FollowKeys, view: ServedView) -> FollowQuery:
    """The query that gives the rows of these keys, for a client that may not see all of them."""
    terms = [exact_key(key, view.key) for key in follow.keys]
    if None in terms:
        raise _query_only(follow.view, "keys of a type that no query compares")
    return FollowQuery(follow.id, follow.view, " or ".join(term for term in terms if term), follow.position)


def _extent(kind: Kind, name: str, grant: Grant, key: tuple[Column, ...]) -> Extent:
    try:
        return extent(grant.keys, key)
    except Unfit as error:
        tell(kind, name, str(error))
        raise _unusable(f"keys that fit the key of the {kind} {name}", f"others: {error}") from None


def _unfit(view: str, error: QueryError) -> Problem:
    tell("view", view, f"the filter does not fit the view: expected {error.expected[:200]}")
    return _unusable(
        f"a filter that fits the columns of view {view}", f"one with an error: expected {error.expected[:200]}"
    )


def _unusable(expected: str, got: str) -> Problem:
    remedy = "Correct the rights of the token, or of the gateway's file."
    return _forbidden("rights that can't be used", expected, got, remedy)


def _query_only(view: str, got: str) -> Problem:
    return _forbidden(
        "query only", f"a query over view {view}: the token allows some of its rows", got, "Follow a query."
    )


def _not_allowed(what: str, got: str) -> Problem:
    return _forbidden(
        "not allowed", f"a {what} that the token allows", got, "Ask for a token with other rights; see docs/access.md."
    )


def _forbidden(error: str, expected: str, got: str, remedy: str) -> Problem:
    return refusal(forbidden(error, expected, got, remedy))
