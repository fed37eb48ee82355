"""Who the client is: a token, or tickets. A token that was refused is not sent again."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from tailrace.client.again import Verdict

Secret = str | Callable[[], str | Awaitable[str]]


class Credentials:
    """`token` is a JWT or a function that gives one; `ticket` a function that gives a one-time ticket."""

    def __init__(self, token: Secret | None, ticket: Callable[[], str | Awaitable[str]] | None) -> None:
        self.token: str | None = None  # the last one that was asked for
        self._asked, self._ticket = token, ticket
        self._refused: str | None = None

    @property
    def renewable(self) -> bool:
        """Whether there may be a new token later."""
        return callable(self._asked)

    @property
    def stale(self) -> bool:
        """Whether the token is the one that was refused."""
        return self.token is not None and self.token == self._refused

    async def ask(self) -> str | None:
        """The token for the next connection, if any. Raises what the function raises."""
        self.token = await _given(self._asked)
        return self.token

    async def address(self, url: str) -> str:
        """The address, with a ticket if there are tickets."""
        ticket = await _given(self._ticket)
        if ticket is None:
            return url
        return f"{url}{'&' if '?' in url else '?'}ticket={quote(ticket, safe='')}"

    def accepted(self) -> None:
        """The gateway took the token."""
        self._refused = None

    def refused(self) -> Verdict:
        """The gateway did not take it: `again` if there may be another."""
        if self.stale or not (self.renewable or self._ticket):
            return "stop"
        self._refused = self.token
        return "again"


async def _given(secret: Secret | None) -> str | None:
    found = secret() if callable(secret) else secret
    return await found if inspect.isawaitable(found) else found
