"""What the rights of a token allow of views, feeds and topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import cast

from tailrace.access.extents import Extent, Unfit, extent
from tailrace.access.filters import predicate
from tailrace.access.identity import Identity
from tailrace.access.refused import Refused, forbidden, unauthorized
from tailrace.access.rights import Grant, Kind
from tailrace.access.telling import tell
from tailrace.contracts.catalog import Column
from tailrace.gateway.catalog import Known as Catalog
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.guard.access import Identity as Known
from tailrace.gateway.problems import Problem, refusal
from tailrace.gateway.unknown import no_catalog, unknown_view
from tailrace.queries import Predicate, QueryError

# The key of a feed that is not there: nobody learns that from what is refused.
_ANY_CLIENT = (Column("client", "string"),)


class Allowing:
    """Says what clients may have. Every method raises a Problem for what they may not.

    What may not be had is refused before anyone looks whether it is there, so that nobody learns it from an answer.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def may_know(self, identity: Known | None, kind: Kind, name: str) -> None:
        """Return where the client may have something of a view, a feed or a topic, and so may know of it."""
        if not known(identity).rights.names(kind, name):
            raise refusal(_not_allowed(kind, name))

    def known_names(self, identity: Known | None, kind: Kind, names: Iterable[str]) -> list[str]:
        """Those of some views, feeds or topics that the client may know of."""
        rights = known(identity).rights
        return sorted(name for name in names if rights.names(kind, name))

    def view(self, identity: Known | None, name: str) -> KnownView:
        """A view that the client may have something of; raises a Problem where it is not there, too."""
        self.may_know(identity, "view", name)
        if not self._catalog.loaded:
            raise no_catalog(self._catalog)
        found = self._catalog.views.get(name)
        if found is None:
            raise unknown_view(name, self.known_names(identity, "view", self._catalog.views))
        return found

    def may_follow_keys(self, identity: Known | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may follow these keys, whatever their rows are."""
        self.may_ask(identity, view, keys)
        if self.seen_filter(identity, view) is not None:
            raise refusal(query_only(view, "keys, whose rows may come to be others"))

    def may_ask(self, identity: Known | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may ask for these keys; `seen_filter` says which of their rows it may see."""
        extent = self._extent_of(identity, view)
        for key in keys:
            if not extent.allows(key.decode()):
                raise refusal(
                    forbidden(
                        "key not allowed",
                        f"a key of view {view} that the token allows",
                        key.decode()[:200],
                        "Ask for another key, or for a token with other rights.",
                    )
                )

    def allows_key(self, identity: Known | None, view: str, key: bytes) -> bool:
        """Whether the client may ask for a key."""
        return self._extent_of(identity, view).allows(key.decode())

    def query_filter(self, identity: Known | None, view: str) -> str | None:
        """What is to be ANDed to every query of the client over a view; None for nothing."""
        found = self.row_filter(identity, view)
        return None if found is None else found.text

    def row_filter(self, identity: Known | None, view: str) -> Predicate | None:
        """What every row must match that the client gets of a view; None where it may have them all."""
        grant, extent = self._grant(identity, view), self._extent_of(identity, view)
        terms = [] if grant.where is None else [f"({grant.where})"]
        if extent.patterns is not None:
            if extent.condition is None:
                raise refusal(
                    forbidden(
                        "keys only",
                        f"keys of view {view}: no query can say which of its rows the token allows",
                        "a query",
                        "Ask for keys.",
                    )
                )
            terms.append(f"({extent.condition})")
        return self._predicate(self.view(identity, view), " and ".join(terms)) if terms else None

    def rights_digest(self, identity: Known | None, view: str) -> str:
        """What tells a client, and what it may see of a view, from all others."""
        filter = self.row_filter(identity, view)
        held = json.dumps([known(identity).user, None if filter is None else filter.text])
        return sha256(held.encode()).hexdigest()

    def seen_filter(self, identity: Known | None, view: str) -> Predicate | None:
        """What the row of an allowed key must match."""
        grant = self._grant(identity, view)
        return None if grant.where is None else self._predicate(self.view(identity, view), grant.where)

    def may_follow_feed(self, identity: Known | None, feed: str, client: str) -> None:
        """Return where the client may follow a feed of this client id."""
        grant = known(identity).rights.feed(feed)
        if grant is not None and not self._catalog.loaded:
            raise no_catalog(self._catalog)
        declared = self._catalog.feeds.get(feed)
        columns = _ANY_CLIENT if declared is None else declared.entry.key
        if grant is None or not _extent("feed", feed, grant, columns).allows(client):
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

    def _grant(self, identity: Known | None, view: str) -> Grant:
        grant = known(identity).rights.view(view)
        if grant is None:
            raise refusal(_not_allowed("view", view))
        return grant

    def _extent_of(self, identity: Known | None, view: str) -> Extent:
        grant = self._grant(identity, view)
        return _extent("view", view, grant, self.view(identity, view).key)

    def _predicate(self, view: KnownView, text: str) -> Predicate:
        try:
            return predicate(text, view.columns)
        except QueryError as error:
            tell("view", view.name, f"the filter does not fit the view: expected {error.expected[:200]}")
            raise _unusable(
                f"a filter that fits the columns of view {view.name}",
                f"one with an error: expected {error.expected[:200]}",
            ) from None


def known(identity: Known | None) -> Identity:
    """Who a client is; raises a Problem where it has not said so."""
    if identity is None:
        raise refusal(unauthorized("no token", "a token", "none", "Send auth first."))
    return cast(Identity, identity)


def query_only(view: str, got: str) -> Refused:
    """What is said to who asks for keys and may only have a query."""
    return forbidden(
        "query only", f"a query over view {view}: the token allows some of its rows", got, "Follow a query."
    )


def _extent(kind: Kind, name: str, grant: Grant, key: tuple[Column, ...]) -> Extent:
    try:
        return extent(grant.keys, key)
    except Unfit as error:
        tell(kind, name, str(error))
        raise _unusable(f"keys that fit the key of the {kind} {name}", f"others: {error}") from None


def _unusable(expected: str, got: str) -> Problem:
    remedy = "Correct the rights of the token, or of the gateway's file."
    return refusal(forbidden("rights that can't be used", expected, got, remedy))


def _not_allowed(what: str, got: str) -> Refused:
    return forbidden(
        "not allowed", f"a {what} that the token allows", got, "Ask for a token with other rights; see docs/access.md."
    )
