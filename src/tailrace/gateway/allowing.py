"""What the rights of a token allow of views, feeds and topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, cast

from tailrace.access.filters import both, exact_key, key_filter, predicate
from tailrace.access.identity import Identity
from tailrace.access.refused import Refused, forbidden, unauthorized
from tailrace.access.rights import Grant
from tailrace.gateway.access_hook import Identity as Known
from tailrace.gateway.known import Known as Catalog
from tailrace.gateway.known import KnownView
from tailrace.gateway.problems import Problem, refusal
from tailrace.gateway.requests import Follow, FollowFeed, FollowKeys, FollowQuery
from tailrace.gateway.resume import OTHER_RIGHTS
from tailrace.queries import Predicate, QueryError, parse
from tailrace.store.outages import Unavailable


class Restricted(Protocol):
    """Remembers who was shown a part of a view: `tailrace.store.restricted.Restricted`."""

    async def add(self, user: str, view: str) -> None:
        """Remember that a user is shown a part of a view."""

    async def includes(self, user: str, view: str) -> bool:
        """Whether a user was shown a part of a view lately."""


class Allowing:
    """Says what clients may have. Every method raises a Problem for what they may not."""

    def __init__(self, catalog: Catalog, restricted: Restricted) -> None:
        self._catalog = catalog
        self._restricted = restricted

    def may_follow_keys(self, identity: Known | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may follow these keys, whatever their rows are."""
        self.may_ask(identity, view, keys)
        if self.seen_filter(identity, view) is not None:
            raise refusal(_query_only(view, "keys, whose rows may come to be others"))

    def may_ask(self, identity: Known | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may ask for these keys; `seen_filter` says which of their rows it may see."""
        grant = self._grant(identity, view)
        for key in keys:
            if not grant.allows(key.decode()):
                raise refusal(
                    forbidden(
                        "key not allowed",
                        f"a key of view {view} that the token allows",
                        key.decode()[:200],
                        "Ask for another key, or for a token with other rights.",
                    )
                )

    def query_filter(self, identity: Known | None, view: str) -> str | None:
        """What is to be ANDed to every query of the client over a view; None for nothing."""
        found = self.row_filter(identity, view)
        return None if found is None else found.text

    def row_filter(self, identity: Known | None, view: str) -> Predicate | None:
        """What every row must match that the client gets of a view; None where it may have them all."""
        grant = self._grant(identity, view)
        if grant.whole:
            return None
        known = self._catalog.views.get(view)
        if known is None:
            raise refusal(_not_allowed("view", view))
        terms = [] if grant.where is None else [f"({grant.where})"]
        if grant.keys is not None and not any(pattern.anything for pattern in grant.keys):
            keys = key_filter(grant.keys, known.key)
            if keys is None:
                raise refusal(
                    forbidden(
                        "keys only",
                        f"keys of view {view}: no query can say which of its rows the token allows",
                        "a query",
                        "Ask for keys.",
                    )
                )
            terms.append(f"({keys})")
        return self._predicate(known, " and ".join(terms))

    def seen_filter(self, identity: Known | None, view: str) -> Predicate | None:
        """What the row of an allowed key must match."""
        grant, known = self._grant(identity, view), self._catalog.views.get(view)
        return None if grant.where is None or known is None else self._predicate(known, grant.where)

    def may_follow_feed(self, identity: Known | None, feed: str, client: str) -> None:
        """Return where the client may follow a feed of this client id."""
        if not known(identity).rights.feed(feed, client):
            raise refusal(_not_allowed("feed", f"{feed} of {client[:200]}"))

    def may_send(self, identity: Known | None, topic: str) -> None:
        """Return where the client may send events to a topic."""
        if not known(identity).rights.topic(topic):
            raise refusal(_not_allowed("topic", topic))

    def may_operate(self, identity: Known | None) -> None:
        """Return where the client may see what the gateway counts."""
        if not known(identity).rights.operations:
            raise refusal(
                forbidden("not allowed", 'a token with "operations": true', "one without", "Or set --open metrics.")
            )

    async def narrowed(self, identity: Known | None, follow: Follow) -> Follow:
        """What a client follows that asks for this: no more than it may see.

        Keys under a filter are a query, so that rows come and go by it. A position that was had under a filter is worth
        nothing: rows that the client could not see then are older than it.
        """
        if isinstance(follow, FollowFeed):
            self.may_follow_feed(identity, follow.feed, follow.client)
        elif isinstance(follow, FollowQuery):
            if not await self._resumable(identity, follow):
                follow = replace(follow, position=OTHER_RIGHTS)
            return await self._narrowed_query(identity, follow)
        elif isinstance(follow, FollowKeys):
            self.may_ask(identity, follow.view, [key.encode() for key in follow.keys])
            if not await self._resumable(identity, follow):
                follow = replace(follow, position=OTHER_RIGHTS, positions={})
            if self.seen_filter(identity, follow.view) is not None:
                return await self._narrowed_query(identity, as_query(follow, self._catalog.views[follow.view]))
        return follow

    async def _resumable(self, identity: Known | None, follow: FollowKeys | FollowQuery) -> bool:
        """Whether the position that a client brings, if any, says what it has seen of what it may see.

        One that was had under a filter does not, neither under another one nor without: see docs/decisions/0022.
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

    async def _narrowed_query(self, identity: Known | None, follow: FollowQuery) -> FollowQuery:
        restriction = self.row_filter(identity, follow.view)
        if restriction is None:
            return follow
        columns = self._catalog.views[follow.view].columns
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

    def changed(self, follow: Follow, before: Known | None, after: Known | None) -> Problem | None:
        """What becomes of a subscription when its client shows another token; None where it may go on as it is."""
        try:
            now = self._extent(after, follow)
        except Problem as problem:
            return problem
        try:
            same = now == self._extent(before, follow)
        except Problem:
            same = False
        if same:
            return None
        return refusal(
            Refused(
                429,
                "other rights",
                expected="the same rows as before by the new token",
                got="others",
                remedy="Subscribe again, without a position: what you hold may not be what you may see.",
            )
        )

    def _extent(self, identity: Known | None, follow: Follow) -> object:
        if isinstance(follow, FollowKeys):
            self.may_ask(identity, follow.view, [key.encode() for key in follow.keys])
            found = self.seen_filter(identity, follow.view)
            return None if found is None else found.text
        if isinstance(follow, FollowQuery):
            return self.query_filter(identity, follow.view)
        if isinstance(follow, FollowFeed):
            self.may_follow_feed(identity, follow.feed, follow.client)
        return None

    def _grant(self, identity: Known | None, view: str) -> Grant:
        grant = known(identity).rights.view(view)
        if grant is None:
            raise refusal(_not_allowed("view", view))
        return grant

    def _predicate(self, view: KnownView, text: str) -> Predicate:
        try:
            return predicate(text, view.columns)
        except QueryError as error:
            raise refusal(
                forbidden(
                    "rights that can't be used",
                    f"a filter that fits the columns of view {view.name}",
                    f"one with an error: expected {error.expected[:200]}",
                    "Correct the rights of the token, or of the gateway's file.",
                )
            ) from None


def as_query(follow: FollowKeys, view: KnownView) -> FollowQuery:
    """The query that gives the rows of these keys, where it is not certain that they may be seen."""
    terms = [exact_key(key, view.key) for key in follow.keys]
    if None in terms:
        raise refusal(_query_only(follow.view, "keys of a type that no query compares"))
    return FollowQuery(follow.id, follow.view, " or ".join(term for term in terms if term), follow.position)


def known(identity: Known | None) -> Identity:
    if identity is None:
        raise refusal(unauthorized("no token", "a token", "none", "Send auth first."))
    return cast(Identity, identity)


def _query_only(view: str, got: str) -> Refused:
    return forbidden(
        "query only", f"a query over view {view}: the token allows some of its rows", got, "Follow a query."
    )


def _not_allowed(what: str, got: str) -> Refused:
    return forbidden(
        "not allowed", f"a {what} that the token allows", got, "Ask for a token with other rights; see docs/access.md."
    )
