"""Who a client is, and what it may follow: asked before a connection is served and before a subscription starts.

A gateway without one (`Gateway.access` is None) lets everyone follow everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starlette.types import Scope


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

    def may_follow_feed(self, identity: Identity | None, feed: str, client: str) -> None:
        """Return where the client may follow a feed of this client id."""
