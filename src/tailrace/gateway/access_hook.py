"""Who a client is, and what it may follow: asked before a connection is served and before a subscription starts.

A gateway without one (`Gateway.access` is None) lets everyone follow everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starlette.types import Scope

from tailrace.gateway.problems import Problem
from tailrace.gateway.requests import Follow
from tailrace.queries import Predicate


class Identity(Protocol):
    """A client that is known. `expires` is when its rights end, in ms since 1970; None where they do not."""

    @property
    def expires(self) -> int | None:
        """When the rights end."""


class Access(Protocol):
    """Every method raises a `Problem` that says what was expected: 401 for who is not known, 403 for what may not be.

    The identity of a connection is kept at `Wire.identity`; `Hub.wires()` are all connections, and
    `wire.finish(UNAUTHORIZED)` ends one.
    """

    async def of_request(self, scope: Scope) -> Identity:
        """Who sends an HTTP request: a header, a cookie or a ticket."""

    async def of_socket(self, scope: Scope) -> Identity | None:
        """Who opens a WebSocket; None where its first message has to say it.

        Raises a Problem for an origin that is not allowed: the connection is not accepted.
        """

    async def of_token(self, token: str) -> Identity:
        """Who sends an `auth` message."""

    def may_follow_keys(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may follow these keys of a view."""

    def query_filter(self, identity: Identity | None, view: str) -> str | None:
        """What is to be ANDed to every query of the client over a view; None for nothing."""

    def may_ask(self, identity: Identity | None, view: str, keys: Sequence[bytes]) -> None:
        """Return where the client may ask for these keys; `seen_filter` says which of their rows it may see."""

    def row_filter(self, identity: Identity | None, view: str) -> Predicate | None:
        """What every row must match that the client gets of a view; None where it may have them all."""

    def seen_filter(self, identity: Identity | None, view: str) -> Predicate | None:
        """What the row of a key must match that `may_ask` allows; None where it may be any."""

    async def narrowed(self, identity: Identity | None, follow: Follow) -> Follow:
        """What is followed when a client asks for this: no more than it may see. Keys under a filter are a query."""

    def changed(self, follow: Follow, before: Identity | None, after: Identity | None) -> Problem | None:
        """Why a subscription can't go on when its client shows another token; None where it can."""

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
