"""Tokens: algorithms, keys, clocks, issuers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tailrace.access.identity import Identity
from tailrace.access.keys import OneKey, PublishedKeys, published, read_key
from tailrace.access.patterns import Pattern
from tailrace.access.refused import Refused
from tailrace.access.rights import Grant, read_documents
from tailrace.access.tokens import LONGEST, Terms, Tokens
from tailrace.errors import SettingError

SECRET = b"a shared secret that is long enough for every algorithm with one, HS512, too"
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
NOW = 1_800_000_000.0
CLAIMS: dict[str, Any] = {"sub": "c7", "exp": NOW + 60, "iss": "https://issuer", "aud": "tailrace", "tailrace": {}}


def pem(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return found


def tokens(algorithm: str = "HS256", key: bytes = SECRET, **terms: Any) -> Tokens:
    given = {"issuer": "https://issuer", "audience": "tailrace", "leeway": 10.0, **terms}
    return Tokens(Terms(algorithm, **given), OneKey(read_key(key, algorithm, "the key")), lambda: NOW)


def signed(key: Any = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    held = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(held, key, algorithm=algorithm, headers=headers)


def forged(header: Mapping[str, Any], claims: Mapping[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def identity(by: Tokens, token: str) -> Identity:
    return asyncio.run(by.identity(token))


def refusal(by: Tokens, token: str) -> Refused:
    with pytest.raises(Refused) as caught:
        identity(by, token)
    assert token[:40] not in str(caught.value) or len(token) < 5
    return caught.value


def test_tokens_of_each_algorithm_are_believed() -> None:
    for by, token in (
        (tokens(), signed()),
        (tokens("RS256", pem(RSA)), signed(RSA, "RS256")),
        (tokens("ES256", pem(EC)), signed(EC, "ES256")),
    ):
        found = identity(by, token)
        assert (found.subject, found.expires) == ("c7", int((NOW + 70) * 1000))


def test_a_token_cannot_choose_the_algorithm() -> None:
    public = pem(RSA)
    # The public key as the secret of an HMAC: what the library refuses to sign is signed by hand.
    head = forged({"alg": "HS256", "typ": "JWT"}, CLAIMS).rpartition(".")[0]
    confused = (
        head + "." + base64.urlsafe_b64encode(hmac.digest(public, head.encode(), hashlib.sha256)).decode().rstrip("=")
    )
    for by, token in (
        (tokens("RS256", public), confused),
        (tokens("RS256", public), signed()),
        (tokens("RS256", public), signed(EC, "ES256")),
        (tokens(), signed(RSA, "RS256")),
        (tokens(), signed(algorithm="HS512")),
        (tokens(), forged({"alg": "none"}, CLAIMS)),
        (tokens(), forged({"alg": "None"}, CLAIMS)),
        (tokens(), forged({"alg": ["HS256"]}, CLAIMS)),
        (tokens(), forged({}, CLAIMS)),
        (tokens(), jwt.encode(CLAIMS, "", algorithm="none")),
    ):
        assert refusal(by, token).status == 401


def test_a_signature_of_another_key_is_not_believed() -> None:
    assert refusal(tokens(), signed(b"another secret of more than thirty-two bytes")).error == "token not believed"
    head, _, signature = signed().rpartition(".")
    other = signed(sub="c8").rpartition(".")[0]
    assert refusal(tokens(), f"{other}.{signature}").error == "token not believed"
    assert refusal(tokens(), f"{head}.").error == "token not believed"


@pytest.mark.parametrize(
    "token", ["", "x", "a.b.c", "a.b.c.d", "..", "\ud800.a.b", "ä.ö.ü", forged({"alg": "HS256", "crit": ["x"]}, {})]
)
def test_what_is_no_token_is_refused(token: str) -> None:
    assert refusal(tokens(), token).status == 401


def test_a_token_that_is_too_long_is_refused_unread() -> None:
    assert refusal(tokens(), LONGEST * "a" + "a").error == "token too long"


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"exp": None}, "token without an end"),
        ({"exp": "1800000060"}, "token without an end"),
        ({"exp": True}, "token without an end"),
        ({"exp": float("nan")}, "token without an end"),
        ({"exp": float("inf")}, "token without an end"),
        ({"exp": NOW - 10}, "token expired"),
        ({"exp": NOW - 1000}, "token expired"),
        ({"nbf": NOW + 11}, "token not valid yet"),
        ({"nbf": "soon"}, "token not valid yet"),
        ({"nbf": float("nan")}, "token not valid yet"),
        ({"iat": NOW + 11}, "token not valid yet"),
        ({"iss": "https://other"}, "token of another kind"),
        ({"iss": None}, "token of another kind"),
        ({"iss": ["https://issuer"]}, "token of another kind"),
        ({"aud": "other"}, "token of another kind"),
        ({"aud": None}, "token of another kind"),
        ({"aud": ["other"]}, "token of another kind"),
        ({"aud": {"tailrace": 1}}, "token of another kind"),
    ],
)
def test_a_token_must_be_valid_now_and_for_this_gateway(claims: dict[str, Any], error: str) -> None:
    token = forged({"alg": "HS256"}, {k: v for k, v in {**CLAIMS, **claims}.items() if v is not None})
    head = token.rpartition(".")[0]
    signature = base64.urlsafe_b64encode(hmac.digest(SECRET, head.encode(), hashlib.sha256)).decode().rstrip("=")
    assert refusal(tokens(), f"{head}.{signature}").error == error


def test_the_leeway_is_for_clocks_that_differ() -> None:
    assert identity(tokens(), signed(exp=NOW - 9, nbf=NOW + 9, iat=NOW + 9)).until == NOW + 1
    assert identity(tokens(audience=""), signed(aud=["a", "tailrace"])).subject == "c7"
    assert identity(tokens(), signed(aud=["a", "tailrace"])).subject == "c7"


def test_claims_of_a_ticket_are_checked_again() -> None:
    by = tokens()
    assert by.trusted({**CLAIMS}).subject == "c7"
    with pytest.raises(Refused, match="expired"):
        by.trusted({**CLAIMS, "exp": NOW - 60})


def test_rights_come_from_the_claim_or_from_the_file() -> None:
    found = identity(tokens(), signed(tailrace={"views": {"orders": ["{sub}"]}}))
    grant = found.rights.view("orders")
    assert grant is not None and grant.keys == (Pattern("c7"),)
    nested = tokens(rights_claim="app.rights")
    assert identity(nested, signed(app={"rights": {"views": True}})).rights.view("x") is not None
    file = tokens(documents=read_documents({"feeds": {"notices": ["{sub}"]}}))
    found = identity(file, signed(tailrace={"views": True}))
    assert found.rights.view("orders") is None and found.rights.feed("notices") == Grant((Pattern("c7"),))
    assert refusal(tokens(), signed(tailrace=None)).error == "token without rights"
    refused = refusal(tokens(), signed(tailrace={"views": {"orders": 1}}))
    assert (refused.status, refused.error) == (403, "rights that can't be read") and "views.orders" in refused.got


@pytest.mark.parametrize(
    ("key", "algorithm", "says"),
    [
        (b"short", "HS256", "at least 32 bytes"),
        (pem(RSA), "HS256", "got a PEM key"),
        (SECRET, "RS256", "a public key for RS256"),
        (pem(EC), "RS256", "a public key for RS256"),
        (pem(RSA), "ES256", "a public key for ES256"),
        (pem(rsa.generate_private_key(65537, 1024)), "RS256", "2048 bits"),  # noqa: S505
        (
            RSA.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            "RS256",
            "got a private one",
        ),
    ],
)
def test_a_key_that_does_not_fit_is_refused_without_being_shown(key: bytes, algorithm: str, says: str) -> None:
    with pytest.raises(SettingError, match=says) as caught:
        read_key(key, algorithm, "the key")
    assert key.decode() not in str(caught.value)


def jwk(key: Any, **more: object) -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


def test_of_published_keys_only_those_for_the_algorithm_are_taken() -> None:
    held = [
        jwk(RSA, kid="a", use="sig"),
        jwk(RSA, kid="enc", use="enc"),
        jwk(RSA, kid="other", alg="RS512"),
        jwk(EC, kid="ec"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"},
        jwk(RSA),
        {"kty": "RSA", "kid": "broken", "n": "x"},
        "nonsense",
    ]
    data = json.dumps({"keys": held}).encode()
    assert {name: len(keys) for name, keys in published(data, "RS256").items()} == {"a": 1, None: 1}
    assert set(published(data, "ES256")) == {"ec"}
    for bad in (b"", b"[]", b'{"keys":[]}', b'{"keys":1}', json.dumps({"keys": [jwk(EC)]}).encode()):
        with pytest.raises(ValueError, match="expected"):
            published(bad, "RS256")


class Issuer:
    """An issuer whose keys a test turns over, and who can be away."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = list(keys)
        self.away = False
        self.asked = 0

    def fetch(self) -> bytes:
        self.asked += 1
        time.sleep(0.02)
        if self.away:
            raise OSError("no route to host")
        return json.dumps({"keys": self.keys}).encode()


def test_new_keys_are_found_old_ones_stay_while_the_issuer_is_away_and_floods_ask_once() -> None:
    async def go() -> None:
        now = [0.0]
        issuer = Issuer(jwk(RSA, kid="a"))
        keys = PublishedKeys(issuer.fetch, "RS256", clock=lambda: now[0])
        by = Tokens(Terms("RS256", leeway=1), keys, lambda: NOW)
        token = signed(RSA, "RS256", {"kid": "a"})
        found = await asyncio.gather(*(by.identity(token) for _ in range(20)))
        assert issuer.asked == 1 and len(found) == 20
        other = rsa.generate_private_key(65537, 2048)
        issuer.keys.append(jwk(other, kid="b"))
        newer = signed(other, "RS256", {"kid": "b"})
        for name in ("x", "y", "b"):
            with pytest.raises(Refused, match="not believed"):
                await by.identity(signed(RSA, "RS256", {"kid": name}))
        assert issuer.asked == 1
        now[0] += 11
        assert (await by.identity(newer)).subject == "c7"
        assert issuer.asked == 2
        issuer.away = True
        now[0] += 601
        assert (await by.identity(token)).subject == "c7"
        await asyncio.sleep(0.2)
        assert issuer.asked == 3
        assert (await by.identity(newer)).subject == "c7"
        assert (await by.identity(signed(other, "RS256"))).subject == "c7"

    asyncio.run(go())


def test_while_no_key_was_ever_published_the_answer_is_to_ask_again() -> None:
    async def go() -> None:
        issuer = Issuer()
        by = Tokens(Terms("RS256"), PublishedKeys(issuer.fetch, "RS256"), lambda: NOW)
        for _ in range(3):
            with pytest.raises(Refused) as caught:
                await by.identity(signed(RSA, "RS256", {"kid": "a"}))
            assert (caught.value.status, caught.value.retry_after) == (503, 5)
        assert issuer.asked == 1

    asyncio.run(go())
