"""Who clients are, by tokens and tickets."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import suppress

from starlette.types import Scope

from tailrace.access.identity import Identity, check_end
from tailrace.access.refused import Refused, unauthorized
from tailrace.access.revoked import Revoked
from tailrace.access.tokens import Tokens
from tailrace.gateway.catalog import ServedCatalog
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.guard.authorizer import Authorizer, known
from tailrace.gateway.guard.credentials import carried
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.problems import refusal, unavailable
from tailrace.store.connection.outages import Unavailable
from tailrace.store.read.restricted import RestrictedUsers
from tailrace.store.read.tickets import Tickets

# In seconds.
_MARGIN = 0.01
# A ticket is good for this many seconds.
TICKET = 30
_TICKETS = "Redis to answer, which keeps tickets"


class TokenAccess(Authorizer):
    """Knows clients by their tokens."""

    def __init__(
        self,
        tokens: Tokens,
        tickets: Tickets,
        restricted: RestrictedUsers,
        revoked: Revoked,
        catalog: ServedCatalog,
        predicates: Predicates,
        cookie: str,
    ) -> None:
        super().__init__(catalog, predicates, restricted)
        self._tokens = tokens
        self._tickets = tickets
        self._revoked = revoked
        self.cookie = cookie

    async def of_request(self, scope: Scope) -> Identity:
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
        if (asked := identity_of(scope)) is not None:
            # The guard has asked already, and a ticket can be used only once.
            return asked
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
        try:
            return self._valid(await self._tokens.identity(token))
        except Refused as refused:
            raise refusal(refused) from None

    def check(self, identity: Identity | None) -> None:
        found = known(identity)
        try:
            check_end(found.until, time.time())
            self._valid(found)
        except Refused as refused:
            raise refusal(refused) from None

    async def lapse(self, identity: Identity | None) -> None:
        found = known(identity)
        while not self._revoked.includes(found) and (left := found.until - time.time()) > 0:
            # With the margin, the token is over by any clock.
            with suppress(TimeoutError):
                async with asyncio.timeout(left + _MARGIN):
                    await self._revoked.news.wait()

    async def ticket(self, identity: Identity | None) -> str:
        found = secrets.token_urlsafe(32)
        try:
            await self._tickets.put(found, json.dumps(known(identity).claims).encode(), TICKET)
        except Unavailable:
            raise unavailable("Redis is unavailable", "Ask again in a moment.", expected=_TICKETS, got="none") from None
        return found

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
            raise unavailable("Redis is unavailable", "Ask again in a moment.", expected=_TICKETS, got="none") from None
        if held is None:
            raise unauthorized(
                "unknown ticket",
                f"a ticket that is younger than {TICKET} s and was not used yet",
                "another",
                "Get a new one for every connection: POST /tickets.",
            )
        return self._tokens.trusted(json.loads(held))


def _unknown_revocations() -> Refused:
    return Refused(
        503,
        "revocations unknown",
        expected="to have read which tokens were revoked",
        got="no answer of Redis yet",
        remedy="Ask again in a moment; if it lasts, see whether Redis runs.",
        retry_after=1,
    )
