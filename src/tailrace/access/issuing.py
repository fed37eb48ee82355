"""Tokens for development and tests, signed with the secret of a gateway. In production an issuer of yours signs them.

No I/O.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jwt

from tailrace.access.rights import RightsError, read_document
from tailrace.errors import SettingError

# The one algorithm of which signer and gateway have the same key.
ALGORITHM = "HS256"
EVERYTHING: Mapping[str, object] = {"views": True, "feeds": True, "topics": True, "operations": True}
_NO_CLAIMS: Mapping[str, object] = {}


@dataclass(frozen=True)
class Issuer:
    """Signs tokens for the gateways that have this secret. They want `name` as `iss` and `audience`, if not empty."""

    secret: bytes = field(repr=False)
    name: str = ""
    audience: str = ""
    rights_claim: str = "tailrace"

    def token(
        self, subject: str, rights: Mapping[str, object], lasts: float, claims: Mapping[str, object] = _NO_CLAIMS
    ) -> str:
        """A token that lasts so many seconds from now on. It has an id, by which it can be revoked."""
        now = int(time.time())
        own: dict[str, object] = {"sub": subject, "jti": uuid.uuid4().hex, "iat": now, "exp": now + int(lasts)}
        named = {"iss": self.name, "aud": self.audience}
        own |= {name: value for name, value in named.items() if value}
        own[self.rights_claim] = dict(rights)
        if (taken := next((name for name in claims if name in own), None)) is not None:
            raise SettingError(f"--claim {taken}: expected another claim, because the token has this one by itself")
        return jwt.encode({**claims, **own}, self.secret, algorithm=ALGORITHM)


def write_rights(
    *,
    views: Sequence[str] = (),
    keys: Sequence[str] = (),
    where: str = "",
    feeds: Sequence[str] = (),
    clients: Sequence[str] = (),
    topics: Sequence[str] = (),
    operations: bool = False,
) -> dict[str, object]:
    """The document of rights that `tailrace token` gives: all named views alike, and all named feeds.

    Raises SettingError if it would allow nothing, and for rights that a gateway could not read.
    """
    for flag, given, named, needed in (
        ("--key", keys, views, "--views"),
        ("--where", where, views, "--views"),
        ("--client", clients, feeds, "--feeds"),
    ):
        if given and not named:
            raise SettingError(f"{flag}: expected {needed} with it, which it narrows down, got none")
    found: dict[str, object] = {}
    if views:
        found["views"] = dict.fromkeys(views, _extent(keys, where))
    if feeds:
        found["feeds"] = dict.fromkeys(feeds, list(clients) or True)
    if topics:
        found["topics"] = list(topics)
    if operations:
        found["operations"] = True
    if not found:
        raise SettingError(
            "expected what the token allows, got nothing: name it with --views, --feeds, --topics or --operations, "
            "or allow everything with --all"
        )
    try:
        read_document(found)
    except RightsError as error:
        raise SettingError(f"expected rights as in docs/access.md, got others: {error}") from None
    return found


def _extent(keys: Sequence[str], where: str) -> object:
    """What is allowed of each view."""
    patterns = [_pattern(key) for key in keys]
    if where:
        return {"keys": patterns, "where": where} if patterns else {"where": where}
    return patterns or True


def _pattern(key: str) -> object:
    """A key; one of several columns is a JSON array of texts."""
    if key.startswith("["):
        try:
            return json.loads(key)
        except ValueError:
            pass
    return key
