"""Who a client is, and what it may follow: asked before a connection is served and before a subscription starts.

A gateway without one (`Gateway.access` is None) lets everyone follow everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from starlette.types import Scope

from tailrace.access.rights import Kind
from tailrace.gateway.live.requests import Follow, FollowKeys, FollowQuery
from tailrace.queries import Predicate


class Identity(Protocol):
    """A client that is known. `expires` is when its rights end, in ms since 1970; None where they do not."""

    @property
    def expires(self) -> int | None:
        """When the rights end."""


class Access(Protocol):
    """Every method raises a `Problem` that says what was expected: 401 for who is not known, 403 for what may not be.

    The identity of a connection is kept at `Wire.identity`; `Hub.wires()` are all connections, and
    `wire.finish(UNAUTHORIZED)` ends one. `cookie` is the name of the one that may carry a token, if any.
    """

    cookie: str

    async def of_request(self, scope: Scope) -> Identity:
        """Who sends an HTTP request: a header, a cookie or a ticket."""

    async def of_socket(self, scope: Scope) -> Identity | None:
        """Who opens a WebSocket; None where its first message has to say it.

        Raises a Problem for an origin that is not allowed: the connection is not accepted.
        """

    async def of_token(self, token: str) -> Identity:
        """Who sends an `auth` message."""

    def check(self, identity: Identity | None) -> None:
        """Return where what a client was known by still counts, after it has waited for its answer."""

    async def lapse(self, identity: Identity | None) -> None:
        """Return when what a client was known by counts no more: its token is over, or was revoked."""

    def may_know(self, identity: Identity | None, kind: Kind, name: str) -> None:
        """Return where the client may have something of a view, a feed or a topic, and so may know of it."""

    def known_names(self, identity: Identity | None, kind: Kind, names: Iterable[str]) -> list[str]:
        """Those of some views, feeds or topics that the client may know of."""

    def may_follow_keys(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may follow these keys of a view."""

    def query_filter(self, identity: Identity | None, view: str) -> str | None:
        """What is to be ANDed to every query of the client over a view; None for nothing."""

    def may_ask(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may ask for these keys; `seen_filter` says which of their rows it may see."""

    def allows_key(self, identity: Identity | None, view: str, key: bytes) -> bool:
        """Whether the client may ask for a key."""

    def row_filter(self, identity: Identity | None, view: str) -> Predicate | None:
        """What every row must match that the client gets of a view; None where it may have them all."""

    def rights_digest(self, identity: Identity | None, view: str) -> str:
        """What tells a client, and what it may see of a view, from all others."""

    def seen_filter(self, identity: Identity | None, view: str) -> Predicate | None:
        """What the row of a key must match that `may_ask` allows; None where it may be any."""

    async def narrowed(self, identity: Identity | None, follow: Follow) -> Follow:
        """What is followed when a client asks for this: no more than it may see. Keys under a filter are a query."""

    async def resumable(self, identity: Identity | None, follow: FollowKeys | FollowQuery) -> bool:
        """Whether the position that a client brings, if any, says what it has seen of what it may see."""

    def changed(self, follow: Follow, before: Identity | None, after: Identity | None) -> bool:
        """Whether a client that follows this sees other rows by another token."""

    def may_send(self, identity: Identity | None, topic: str) -> None:
        """Return where the client may send events to a topic."""

    def may_operate(self, identity: Identity | None) -> None:
        """Return where the client may see what the gateway counts."""

    async def close(self) -> None:
        """Close the connections."""

    async def ticket(self, identity: Identity | None) -> str:
        """A ticket for one connection of the client."""

    def may_follow_feed(self, identity: Identity | None, feed: str, client: str) -> None:
        """Return where the client may follow a feed of this client id."""


def identity_of(scope: Scope) -> Identity | None:
    """Who sends a request, as the guard has found out; None where it did not ask."""
    found: Identity | None = scope.get("state", {}).get("identity")
    return found
