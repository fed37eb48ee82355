"""Where a request carries its token: a header, a cookie, or a ticket. Read from the ASGI scope, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from starlette.types import Scope

from tailrace.access.refused import Refused, forbidden, unauthorized

# Parameters that clients put tokens into if a server lets them.
_TELLING = frozenset({"access_token", "token", "jwt", "id_token", "authorization"})
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, repr=False)
class Carried:
    """What a request carries: a token, or a ticket, or neither."""

    token: str | None = None
    ticket: str | None = None


def header(scope: Scope, name: bytes) -> str | None:
    """A header of the request; if it comes several times, the values are joined."""
    found = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return ", ".join(found) if found else None


def parameters(scope: Scope) -> list[tuple[str, str]]:
    """The parameters of the URL. Bytes that are not UTF-8 are replaced, so no key may be read from here."""
    query = scope.get("query_string", b"").decode("latin-1")
    return parse_qsl(query, keep_blank_values=True, errors="replace")


def refuse_tokens_in_urls(scope: Scope) -> None:
    """Raise Refused if a URL has a token: URLs end up in logs and histories."""
    for name, _ in parameters(scope):
        if name.lower() in _TELLING:
            raise Refused(
                400,
                "token in the URL",
                expected="the token in the header Authorization: Bearer, in a cookie, or in the first message (auth)",
                got=f"the parameter {name}",
                remedy="Where a client can set no header, get a ticket (POST /tickets) and send it as the parameter "
                "ticket. Consider this token as known to others: URLs are logged.",
            )


def carried(scope: Scope, cookie: str) -> Carried:
    """What the request carries. `cookie` is the name of the cookie that may hold a token, if any.

    Raises Refused for credentials that can't be read, and for a cookie that another page may have sent.
    """
    authorization = header(scope, b"authorization")
    if authorization is not None:
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorized(
                "unreadable header", "Authorization: Bearer and a token", "another scheme", "Send the token as Bearer."
            )
        return Carried(token.strip())
    tickets = [value for name, value in parameters(scope) if name == "ticket"]
    if tickets:
        if scope["type"] == "http" and not (scope["method"] in _SAFE and scope["path"].endswith("/events")):
            raise unauthorized(
                "ticket for another request",
                "a token",
                "a ticket, which is good for one stream or WebSocket",
                "Send the token in the header Authorization: Bearer.",
            )
        return Carried(ticket=tickets[-1])
    held = _cookie(scope, cookie) if cookie else None
    if held is not None:
        _check_page(scope)
    return Carried(held)


def _cookie(scope: Scope, name: str) -> str | None:
    for part in (header(scope, b"cookie") or "").replace(", ", "; ").split(";"):
        found, _, value = part.strip().partition("=")
        if found == name and value:
            return unquote(value.strip('"'))
    return None


def _check_page(scope: Scope) -> None:
    """Raise Refused unless the request says which page it is from: browsers send cookies with requests of any page.

    The guard knows which pages may. If a page only reads from its own server, a browser names no origin, and
    says so in another header.
    """
    if header(scope, b"origin") is not None:
        return
    reads = scope["type"] == "http" and scope["method"] in _SAFE
    if not reads or header(scope, b"sec-fetch-site") in ("cross-site", "same-site"):
        raise forbidden(
            "unknown page",
            "the header Origin beside a token in a cookie",
            "none",
            "Send the token in the header Authorization: Bearer, or let the browser send Origin.",
        )
