"""Who clients are: the `Access` that the parts of the gateway ask, by tokens and tickets."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import suppress
from typing import cast

from starlette.types import Scope

from tailrace.access.identity import Identity, check_end
from tailrace.access.refused import Refused, unauthorized
from tailrace.access.revoked import Revoked
from tailrace.access.tokens import Tokens
from tailrace.gateway.catalog import Known as Catalog
from tailrace.gateway.guard.access import Identity as Known
from tailrace.gateway.guard.allowed import known
from tailrace.gateway.guard.credentials import carried
from tailrace.gateway.guard.narrowing import Narrowing
from tailrace.gateway.problems import Problem, refusal
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read.restricted import Restricted
from tailrace.store.read.tickets import Tickets

# In seconds.
_MARGIN = 0.01
# A ticket is good for this many seconds.
TICKET = 30


class Granting(Narrowing):
    """Knows clients by their tokens, and what they may have. Every method raises a Problem."""

    def __init__(
        self, tokens: Tokens, tickets: Tickets, restricted: Restricted, revoked: Revoked, catalog: Catalog, cookie: str
    ) -> None:
        super().__init__(catalog, restricted)
        self._closing = (tickets.close, restricted.close)
        self._tokens = tokens
        self._tickets = tickets
        self._revoked = revoked
        self.cookie = cookie

    async def of_request(self, scope: Scope) -> Identity:
        """Who sends an HTTP request."""
        found = await self.of_socket(scope)
        if found is None:
            raise refusal(
                unauthorized(
                    "no token",
                    "a token in the header Authorization: Bearer"
                    + (f", in the cookie {self.cookie}," if self.cookie else "")
                    + " or, for a stream, a ticket",
                    "none",
                    "Get a token from your issuer; see docs/access.md.",
                )
            )
        return found

    async def of_socket(self, scope: Scope) -> Identity | None:
        """Who opens a WebSocket; None where its first message has to say it."""
        if scope.get("state", {}).get("identity") is not None:
            # The guard has asked before; a ticket is taken once.
            return cast(Identity, scope["state"]["identity"])
        try:
            found = carried(scope, self.cookie)
            if found.ticket is not None:
                return self._valid(await self._redeemed(found.ticket))
            if found.token is not None:
                return self._valid(await self._tokens.identity(found.token))
        except Refused as refused:
            raise refusal(refused) from None
        return None

    async def of_token(self, token: str) -> Identity:
        """Who sends an `auth` message."""
        try:
            return self._valid(await self._tokens.identity(token))
        except Refused as refused:
            raise refusal(refused) from None

    def check(self, identity: Known | None) -> None:
        """Return where what the client was known by still counts: it has waited for its answer."""
        found = known(identity)
        try:
            check_end(found.until, time.time())
            self._valid(found)
        except Refused as refused:
            raise refusal(refused) from None

    async def lapse(self, identity: Known | None) -> None:
        """Return when what the client was known by counts no more: its token is over, or was revoked."""
        found = known(identity)
        while not self._revoked.includes(found) and (left := found.until - time.time()) > 0:
            # By any clock it is over after that.
            with suppress(TimeoutError):
                async with asyncio.timeout(left + _MARGIN):
                    await self._revoked.news.wait()

    async def ticket(self, identity: Known | None) -> str:
        """A ticket for one connection of a client."""
        found = secrets.token_urlsafe(32)
        try:
            await self._tickets.put(found, json.dumps(known(identity).claims).encode(), TICKET)
        except Unavailable:
            raise _away() from None
        return found

    async def close(self) -> None:
        """Close the connections."""
        for close in self._closing:
            await close()

    def _valid(self, identity: Identity) -> Identity:
        if not self._revoked.loaded:
            raise _unknown_revocations()
        if self._revoked.includes(identity):
            raise unauthorized("token revoked", "a token that is valid", "one that was revoked", "Sign in again.")
        return identity

    async def _redeemed(self, ticket: str) -> Identity:
        try:
            held = await self._tickets.take(ticket[:200])
        except Unavailable:
            raise _away() from None
        if held is None:
            raise unauthorized(
                "unknown ticket",
                f"a ticket that is younger than {TICKET} s and was not used yet",
                "another",
                "Get a new one for every connection: POST /tickets.",
            )
        return self._tokens.trusted(json.loads(held))


def _away() -> Problem:
    return refusal(
        Refused(
            503,
            "Redis is unavailable",
            expected="Redis to answer, which keeps tickets",
            remedy="Ask again in a moment.",
            retry_after=1,
        )
    )


def _unknown_revocations() -> Refused:
    return Refused(
        503,
        "revocations unknown",
        expected="to have read which tokens were revoked",
        got="no answer of Redis yet",
        remedy="Ask again in a moment; if it lasts, see whether Redis runs.",
        retry_after=1,
    )
