"""The keys that verify tokens: one from a file or a variable, or those that an issuer publishes (JWKS).

The algorithm is configured. A key is read for that algorithm and no other, so a token can't choose: a public key is
never used as a shared secret, and `none` is no algorithm.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jwt
from jwt.algorithms import Algorithm, get_default_algorithms

from tailrace.access.refused import Refused
from tailrace.errors import SettingError

log = logging.getLogger(__name__)

ALGORITHMS = ("HS256", "RS256", "ES256")
SHORTEST_SECRET = 32  # bytes: RFC 7518, 3.2
_SHORTEST_RSA = 2048  # bits
_MOST_KEYS = 100
_FAMILY = {"RS256": "RSA", "ES256": "EC"}

# Keys are fetched again at this age, in seconds; after unknown names and failures no sooner than the second.
FRESH = 600.0
PAUSE = 10.0


class Keys(Protocol):
    """Where keys come from."""

    async def named(self, name: str | None) -> Sequence[Any]:
        """The keys that may have signed a token that names this one, or none. Raises Refused."""


class OneKey:
    """One configured key."""

    def __init__(self, key: Any) -> None:
        self._key = key

    async def named(self, name: str | None) -> Sequence[Any]:  # noqa: ARG002
        """The key, whatever name the token gives."""
        return (self._key,)


class PublishedKeys:
    """The keys of an issuer, by name. `fetch` blocks and gives the JSON; it runs in a thread, once at a time.

    While the issuer is away, known keys stay valid. An unknown name makes it ask the issuer, but at most once per
    `pause`, however many names are made up.
    """

    def __init__(
        self,
        fetch: Callable[[], bytes],
        algorithm: str,
        *,
        fresh: float = FRESH,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._algorithm = algorithm
        self._fresh = fresh
        self._pause = pause
        self._clock = clock
        self._known: dict[str | None, list[Any]] = {}
        self._asked: float | None = None
        self._learnt: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def named(self, name: str | None) -> Sequence[Any]:
        """Known keys at once, unless none has this name. Old keys are fetched again in the background."""
        found = self._found(name)
        if found:
            if self._learnt is not None and self._clock() - self._learnt > self._fresh:
                self._ask()
            return found
        asking = self._ask()
        if asking is not None:
            # Shielded: others wait for the same answer.
            await asyncio.shield(asking)
        if self._learnt is None:
            raise Refused(
                503,
                "keys unknown",
                expected="the keys of the issuer, to verify tokens with",
                got="no answer from it yet",
                remedy="Ask again in a moment; if it lasts, see the gateway's log.",
                retry_after=5,
            )
        return self._found(name)

    def _found(self, name: str | None) -> list[Any]:
        if name is None:
            return [key for keys in self._known.values() for key in keys]
        return self._known.get(name, [])

    def _ask(self) -> asyncio.Task[None] | None:
        now = self._clock()
        if self._asking is None and (self._asked is None or now - self._asked >= self._pause):
            self._asked = now
            self._asking = asyncio.create_task(self._learn())
        return self._asking

    async def _learn(self) -> None:
        try:
            self._known = published(await asyncio.to_thread(self._fetch), self._algorithm)
            self._learnt = self._clock()
            log.info("keys=fetched number=%d", sum(map(len, self._known.values())))
        except (OSError, ValueError) as error:
            log.warning("keys=not-fetched known=%d error=%r", len(self._known), str(error)[:200])
        finally:
            self._asking = None


def read_key(data: bytes, algorithm: str, source: str) -> Any:
    """The key in a file or variable: the secret's bytes, or a public key as PEM. Raises SettingError."""
    if algorithm == "HS256":
        secret = data.strip()
        if b"-----BEGIN" in secret:
            raise SettingError(
                f"{source}: expected a shared secret for HS256, got a PEM key; set --jwt-algorithm to its own"
            )
        if len(secret) < SHORTEST_SECRET:
            raise SettingError(
                f"{source}: expected at least {SHORTEST_SECRET} bytes for HS256, got {len(secret)}; "
                "make one with: openssl rand -base64 48"
            )
        return secret
    if b"PRIVATE KEY" in data:
        raise SettingError(f"{source}: expected a public key, got a private one; the gateway must not have it")
    try:
        key = _algorithm(algorithm).prepare_key(data)
        if algorithm == "RS256" and key.key_size < _SHORTEST_RSA:
            raise SettingError(f"{source}: expected {_SHORTEST_RSA} bits at least, got {key.key_size}")
        return key
    except (ValueError, TypeError, jwt.PyJWTError):
        raise SettingError(
            f"{source}: expected a public key for {algorithm} as PEM (-----BEGIN PUBLIC KEY-----), got something else"
        ) from None


def published(data: bytes, algorithm: str) -> dict[str | None, list[Any]]:
    """The keys of a JWKS that verify this algorithm, by name. Raises ValueError if it has none.

    Keys of other kinds are ignored: issuers also publish keys for encryption.
    """
    try:
        held = json.loads(data)
        listed = held["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("expected a JWKS: a JSON object with keys") from None
    found: dict[str | None, list[Any]] = {}
    for one in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("kty") != _FAMILY[algorithm] or one.get("use", "sig") != "sig":
            continue
        if one.get("alg", algorithm) != algorithm or "d" in one:
            continue
        try:
            key: Any = _algorithm(algorithm).from_jwk(one)
            usable = algorithm != "RS256" or key.key_size >= _SHORTEST_RSA
            _algorithm(algorithm).prepare_key(key)
        except (ValueError, TypeError, KeyError, jwt.PyJWTError):
            usable = False
        if usable:
            name = one.get("kid")
            found.setdefault(name if isinstance(name, str) else None, []).append(key)
    if not found:
        raise ValueError(f"expected a key for {algorithm} among those published, got none")
    return found


def _algorithm(name: str) -> Algorithm:
    return get_default_algorithms()[name]
