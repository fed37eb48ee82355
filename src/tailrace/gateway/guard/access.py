"""Who a client is, and what it may have. Asked before a connection is served and before a subscription starts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha256

from starlette.types import Scope

from tailrace.access.identity import Identity
from tailrace.access.rights import Kind
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.requests import Follow, FollowKeys, FollowQuery
from tailrace.gateway.problems import no_catalog, unknown_view
from tailrace.queries import Predicate


class Access:
    """What clients may have. Without tokens that is everything, and no client is known.

    With tokens (`on`), methods raise a `Problem` that says what was expected: 401 for an unknown client, 403
    for what it may not have. `Wire.identity` keeps the identity of a connection. `cookie` is the name of the
    cookie that may carry a token, if any.
    """

    on = False
    cookie = ""

    def __init__(self, catalog: ServedCatalog, predicates: Predicates) -> None:
        self._catalog = catalog
        self._predicates = predicates

    async def of_request(self, scope: Scope) -> Identity | None:  # noqa: ARG002
        """Who sends an HTTP request, by a header, a cookie or a ticket."""
        return None

    async def of_socket(self, scope: Scope) -> Identity | None:  # noqa: ARG002
        """Who opens a WebSocket; None if its first message has to say it.

        Raises a Problem for an origin that is not allowed: the connection is not accepted.
        """
        return None

    async def of_token(self, token: str) -> Identity | None:  # noqa: ARG002
        """Who sends an `auth` message."""
        return None

    async def ticket(self, identity: Identity | None) -> str:  # noqa: ARG002
        """A ticket for one connection. Without tokens nothing checks it, but clients need not know that."""
        return secrets.token_urlsafe(32)

    def check(self, identity: Identity | None) -> None:
        """Raise a Problem if the token of a client, which has waited for its answer, no longer counts."""

    async def lapse(self, identity: Identity | None) -> None:
        """Return when the token of the client no longer counts: it is over, or was revoked."""

    def may_know(self, identity: Identity | None, kind: Kind, name: str) -> None:
        """Raise a Problem unless the client may know of a view, a feed or a topic, as it may have a part of it."""

    def known_names(self, identity: Identity | None, kind: Kind, names: Iterable[str]) -> list[str]:  # noqa: ARG002
        """The names, of some views, feeds or topics, that the client may know of."""
        return sorted(names)

    def view(self, identity: Identity | None, name: str) -> ServedView:
        """A view. Raises a Problem if the client may not know of it, or if it does not exist.

        The answer names views that the client may know of.
        """
        self.may_know(identity, "view", name)
        if not self._catalog.loaded:
            raise no_catalog(self._catalog.problem)
        found = self._catalog.views.get(name)
        if found is None:
            raise unknown_view(name, self.known_names(identity, "view", self._catalog.views))
        return found

    def may_follow_keys(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        """Raise a Problem unless the client may follow these keys, whatever their rows are."""

    def may_ask(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        """Raise a Problem unless the client may ask for these keys. `seen_filter` says which rows it may see."""

    def allows_key(self, identity: Identity | None, view: str, key: bytes) -> bool:  # noqa: ARG002
        """Whether the client may ask for a key."""
        return True

    def may_follow_feed(self, identity: Identity | None, feed: str, client: str) -> None:
        """Raise a Problem unless the client may follow a feed of this client id."""

    def may_send(self, identity: Identity | None, topic: str) -> None:
        """Raise a Problem unless the client may send events to a topic."""

    def may_operate(self, identity: Identity | None) -> None:
        """Raise a Problem unless the client may see what the gateway counts."""

    def row_filter(self, identity: Identity | None, view: str) -> Predicate | None:  # noqa: ARG002
        """The predicate that rows of a view must match for the client; None if it may have all rows."""
        return None

    def seen_filter(self, identity: Identity | None, view: str) -> Predicate | None:  # noqa: ARG002
        """The predicate that the row of a key that `may_ask` allows must match; None if any row will do."""
        return None

    def rights_digest(self, identity: Identity | None, view: str) -> str:
        """A digest of who a client is and what it may see of a view; empty if access is off."""
        if not self.on:
            return ""
        filter = self.row_filter(identity, view)
        held = json.dumps([identity.user if identity is not None else "", None if filter is None else filter.text])
        return sha256(held.encode()).hexdigest()

    async def query(self, identity: Identity | None, view: ServedView, where: str | None) -> tuple[str, Predicate]:
        """The query that a client gets if it asks for this one: its text, and what it means.

        The rights of the client are joined to the query as a tree. Raises a Problem if the query can't be used.
        """
        # First: a client that may have no query is not told what is wrong with the one it asks for.
        restriction = self.row_filter(identity, view.name)
        text, asked = await self._predicates.parse(where, view.columns)
        if restriction is None:
            return text, asked
        both = restriction if where is None else self._predicates.both(asked, restriction, view.columns)
        return both.text, both

    async def narrowed(self, identity: Identity | None, follow: Follow) -> Follow:  # noqa: ARG002
        """What a client follows if it asks for this: no more than it may see. Keys under a filter become a query."""
        return follow

    async def resumable(self, identity: Identity | None, follow: FollowKeys | FollowQuery) -> bool:  # noqa: ARG002
        """Whether a client's position, if it has one, says what it has seen of what it may see."""
        return True

    def changed(self, follow: Follow, before: Identity | None, after: Identity | None) -> bool:  # noqa: ARG002
        """Whether a client that follows this sees other rows with another token."""
        return False


def identity_of(scope: Scope) -> Identity | None:
    """Who sends a request, if the guard has asked; None otherwise."""
    found: Identity | None = scope.get("state", {}).get("identity")
    return found
