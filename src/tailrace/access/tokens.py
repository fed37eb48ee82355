"""Tokens: from the text that a client sends to its identity."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from tailrace.access.identity import Identity, check_names, lasts_until
from tailrace.access.keys import Keys
from tailrace.access.refused import Refused, forbidden, unauthorized
from tailrace.access.rights import Document, Rights, RightsError, read_document, rights_of
from tailrace.access.telling import tell
from tailrace.access.templates import Claims, claim

LONGEST = 16_384  # characters of a token
_MOST_TRIES = 8


@dataclass(frozen=True)
class Terms:
    """What a token must have: algorithm, issuer and audience (any if empty), and the leeway for clocks in seconds.

    `documents` are the rights of a file. Without a file, the claim `rights_claim` has them.
    """

    algorithm: str
    issuer: str = ""
    audience: str = ""
    leeway: float = 10.0
    documents: tuple[Document, ...] | None = None
    rights_claim: str = "tailrace"


class Tokens:
    """Verifies tokens. `clock` gives the time in seconds since 1970."""

    def __init__(self, terms: Terms, keys: Keys, clock: Callable[[], float] = time.time) -> None:
        self._terms = terms
        self._keys = keys
        self._clock = clock

    async def identity(self, token: str) -> Identity:
        """The identity in a token. Raises Refused if it is not valid."""
        if len(token) > LONGEST:
            raise unauthorized(
                "token too long", f"at most {LONGEST} characters", str(len(token)), "Put less into the token."
            )
        name = self._key_name(token)
        for key in list(await self._keys.named(name))[:_MOST_TRIES]:
            claims = self._verified(token, key)
            if claims is not None:
                return self.trusted(claims)
        raise unauthorized(
            "token not believed",
            f"a token signed with {self._terms.algorithm} and a key that this gateway knows",
            "another signature",
            "Get a token from the issuer that the gateway is configured for.",
        )

    def trusted(self, claims: Claims) -> Identity:
        """The identity in claims that were verified before. The token may have expired since."""
        terms = self._terms
        check_names(claims, terms.issuer, terms.audience)
        return Identity(claims, self._rights(claims), lasts_until(claims, self._clock(), terms.leeway))

    def _key_name(self, token: str) -> str | None:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise unreadable() from None
        if header.get("alg") != self._terms.algorithm:
            raise unauthorized(
                "token not believed",
                f"a token signed with {self._terms.algorithm}",
                "one signed otherwise",
                "Get a token from the issuer that the gateway is configured for.",
            )
        name = header.get("kid")
        return name if isinstance(name, str) else None

    def _verified(self, token: str, key: Any) -> Claims | None:
        # `trusted` checks times, issuer and audience, by our clock, as for tickets.
        options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
        options |= {"verify_iss": False, "verify_sub": False, "verify_jti": False}
        try:
            found = jwt.decode(token, key, algorithms=[self._terms.algorithm], options=options)  # type: ignore[arg-type]
        except jwt.InvalidSignatureError:
            return None
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise unreadable() from None
        return found

    def _rights(self, claims: Claims) -> Rights:
        terms = self._terms
        if terms.documents is not None:
            return rights_of(terms.documents, claims)
        found = claim(claims, terms.rights_claim)
        if found is None:
            raise forbidden(
                "token without rights",
                f"a token with the claim {terms.rights_claim}",
                "none",
                "Let the issuer add it, or give the gateway a file of rights: --rights.",
            )
        try:
            return Rights(read_document(_plain(found)), claims)
        except RightsError as error:
            # Does not show what came instead.
            tell("claim", terms.rights_claim, str(error).partition(", got ")[0])
            raise forbidden(
                "rights that can't be read",
                f"the claim {terms.rights_claim} as in docs/access.md",
                str(error)[:200],
                "Correct what the issuer writes.",
            ) from None


def unreadable() -> Refused:
    """The refusal of a text that is no token."""
    return unauthorized(
        "unreadable token",
        "a JSON Web Token: three parts with dots between",
        "another text",
        "Send the token as it was issued, without quotes.",
    )


def _plain(found: object) -> object:
    return dict(found) if isinstance(found, Mapping) else found
