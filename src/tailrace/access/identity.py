"""Who a client is: the claims of a verified token, and what they allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.access.refused import Refused, unauthorized
from tailrace.access.rights import Rights
from tailrace.access.templates import Claims


@dataclass(frozen=True, eq=False)
class Identity:
    """One token's claims. `until` is when the token expires, in seconds since 1970, with the leeway."""

    claims: Claims = field(repr=False)
    rights: Rights = field(repr=False)
    until: float

    @property
    def expires(self) -> int:
        """When it expires, in ms since 1970."""
        return int(self.until * 1000)

    @property
    def subject(self) -> str | None:
        """Whose token it is."""
        return _text(self.claims, "sub")

    @property
    def token(self) -> str | None:
        """The id of the token itself, its `jti`."""
        return _text(self.claims, "jti")

    @property
    def issued(self) -> float | None:
        """When the token was issued, in seconds since 1970."""
        return _number(self.claims, "iat")

    @property
    def user(self) -> str:
        """The user for limits: tokens that name nobody are counted together."""
        return self.subject or ""


def lasts_until(claims: Claims, now: float, leeway: float) -> float:
    """When a token expires, in seconds since 1970. Raises Refused if it is not valid now."""
    expires = _number(claims, "exp")
    if expires is None:
        raise unauthorized(
            "token without an end", "a token with exp, in seconds since 1970", "none", "Issue tokens that expire."
        )
    check_end(expires + leeway, now)
    for name, what in (("nbf", "valid"), ("iat", "issued")):
        if name not in claims:
            continue
        begins = _number(claims, name)
        if begins is None or not begins <= now + leeway:
            raise unauthorized(
                "token not valid yet",
                f"a token that is {what} now ({name})",
                "one of another time",
                "Wait, or set the clocks of the issuer and of the gateway right.",
            )
    return expires + leeway


def check_end(until: float, now: float) -> None:
    """Raise Refused if a token has expired; both times are in seconds since 1970."""
    if not now < until:
        ago = f"one that expired {now - until:.0f} s ago"
        raise unauthorized("token expired", "a token that is valid", ago, "Get a new token.")


def check_names(claims: Claims, issuer: str, audience: str) -> None:
    """Raise Refused if a token is of another issuer, or for another audience; empty texts take any."""
    if issuer and claims.get("iss") != issuer:
        raise _other("iss", f"a token of the issuer {issuer}")
    if audience:
        found = claims.get("aud")
        if audience not in (found if isinstance(found, list) else [found]):
            raise _other("aud", f"a token for the audience {audience}")
    for name in ("sub", "jti"):
        if not isinstance(claims.get(name, ""), str):
            raise _other(name, f"a text as {name}")


def _other(name: str, expected: str) -> Refused:
    return unauthorized(
        "token of another kind", expected, f"another {name}, or none", "Ask for a token for this gateway."
    )


def _number(claims: Mapping[str, object], name: str) -> float | None:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    # Python reads NaN from JSON, and no comparison would ever find it to be over.
    return float(found) if abs(found) < 1e12 else None


def _text(claims: Mapping[str, object], name: str) -> str | None:
    found = claims.get(name)
    return found if isinstance(found, str) and found else None
