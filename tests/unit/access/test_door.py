"""Who may come in: settings, origins, addresses, rates, revocations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.access.addresses import client_address, is_loopback, read_networks
from tailrace.access.configuration import read_limits, read_tokens
from tailrace.access.identity import Identity
from tailrace.access.limits import Limits
from tailrace.access.origins import Origins, normal, read_origins
from tailrace.access.rates import Bucket, Rates
from tailrace.access.refused import Refused
from tailrace.access.revoked import Revoked
from tailrace.access.rights import NOTHING, Rights
from tailrace.errors import SettingError
from tailrace.settings import Settings

SECRET = "a secret of the settings that no error may show"


def given_settings(**values: str) -> Settings:
    return Settings({name.replace("_", "-"): value for name, value in values.items()})


def test_access_is_off_by_itself_on_loopback_only() -> None:
    assert read_tokens(given_settings(), loopback=True) is None
    with pytest.raises(SettingError, match=r"--jwt-algorithm with --jwt-key or --jwks.*--access off") as caught:
        read_tokens(given_settings(host="10.0.0.1"), loopback=False)
    assert "10.0.0.1" in str(caught.value)
    assert read_tokens(given_settings(access="off"), loopback=False) is None
    assert read_tokens(given_settings(access="off", jwt_secret=SECRET), loopback=False) is None
    for loopback in (True, False):
        found = read_tokens(given_settings(jwt_algorithm="HS256", jwt_secret=SECRET), loopback=loopback)
        assert found is not None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"access": "jwt"}, "--jwt-algorithm: expected one of HS256"),
        ({"jwt_algorithm": "none", "jwt_secret": SECRET}, "--jwt-algorithm: expected one of HS256"),
        ({"jwt_algorithm": "HS256"}, "one of --jwt-key, --jwks and the variable TAILRACE_JWT_SECRET, got none"),
        ({"jwt_algorithm": "HS256", "jwt_secret": SECRET, "jwt_key": "x"}, "got jwt-key and jwt-secret"),
        ({"jwt_algorithm": "HS256", "jwt_key": "/nowhere"}, "--jwt-key: expected a file that can be read"),
        ({"jwt_algorithm": "HS256", "jwt_secret": "short"}, "TAILRACE_JWT_SECRET: expected at least 32 bytes"),
        ({"jwt_algorithm": "RS256", "jwt_secret": SECRET}, "TAILRACE_JWT_SECRET: expected a public key"),
        ({"jwt_algorithm": "RS256", "jwks": "https://i/keys"}, "no issuer"),
        ({"jwt_algorithm": "RS256", "jwks": "https://i/keys", "jwt_issuer": "i"}, "no audience"),
        (
            {"jwt_algorithm": "HS256", "jwks": "https://i/keys", "jwt_issuer": "i", "jwt_audience": "a"},
            "RS256 or ES256 with it",
        ),
        ({"jwt_algorithm": "RS256", "jwks": "file:///etc", "jwt_issuer": "i", "jwt_audience": "a"}, "expected a URL"),
        ({"jwt_algorithm": "HS256", "jwt_secret": SECRET, "rights": "/nowhere"}, "--rights: expected a file"),
    ],
)
def test_what_is_configured_wrongly_is_told_and_no_secret_with_it(values: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError, match=says) as caught:
        read_tokens(given_settings(**values), loopback=False)
    assert SECRET not in str(caught.value) and "short" not in str(caught.value)
    assert SECRET not in repr(given_settings(**values))


def test_a_file_of_rights_that_cannot_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rights.json"
    for text, says in (
        ("{", "expected JSON"),
        (json.dumps({"views": {"a": {"where": "b like {c}"}}}), r"views\.a\.where"),
        (json.dumps({"views": {"*": True, "*a": False}}), r"views\.\*a: expected a name"),
        ('{"views": {"a": {"where": "b = 1"}, "a": true}}', "got 'a' twice"),
    ):
        path.write_text(text)
        with pytest.raises(SettingError, match=says):
            read_tokens(given_settings(jwt_algorithm="HS256", jwt_secret=SECRET, rights=str(path)), loopback=True)


def test_limits_are_settings_and_their_defaults_are_the_same() -> None:
    assert read_limits(Settings({})) == Limits()
    assert read_limits(given_settings(limit_key_bytes="7")).key_bytes == 7
    limits = Limits(keys=2, key_bytes=3)
    limits.check_keys(2, 3)
    for keys, longest, status in ((3, 1, 413), (1, 4, 414)):
        with pytest.raises(Refused) as caught:
            limits.check_keys(keys, longest)
        assert caught.value.status == status


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("https://app.example", "gateway.example", True),
        ("https://APP.example:443", "gateway.example", True),
        ("http://app.example", "gateway.example", False),
        ("https://app.example.evil", "gateway.example", False),
        ("https://evil-app.example", "gateway.example", False),
        ("https://gateway.example", "gateway.example", True),
        ("http://gateway.example:8080", "gateway.example:8080", True),
        ("http://gateway.example:8080", "gateway.example", False),
        ("http://gateway.example:80", "gateway.example", True),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://localhost:3000", "gateway.example", False),
        ("null", "gateway.example", False),
        ("null", "null", False),
        ("", "", False),
        ("file://", "", False),
        ("https://", "", False),
        ("https://app.example@evil.example", "gateway.example", False),
        ("https://[", "gateway.example", False),
    ],
)
def test_an_origin_is_allowed_where_it_is_listed_or_the_gateways_own(origin: str, host: str, allowed: bool) -> None:
    assert read_origins("https://app.example, https://b.example:444").allows(origin, host) is allowed


def test_on_loopback_without_access_pages_of_this_machine_are_allowed() -> None:
    found = read_origins("", local=True)
    assert found.allows("http://localhost:3000", "127.0.0.1:8080") and found.allows("http://127.0.0.1:3000", "x")
    assert not found.allows("http://localhost.evil.example", "127.0.0.1:8080")
    assert not found.allows("https://evil.example", "127.0.0.1:8080")


def test_where_access_is_off_by_itself_the_gateway_has_a_name_of_this_machine() -> None:
    found = read_origins("http://dev.example:8080", local=True, named=True)
    for host in (
        "localhost:8080",
        "127.0.0.1:8080",
        "[::1]:8080",
        "10.1.2.3",
        "app.localhost",
        "gateway",
        "dev.example",
    ):
        assert found.knows(host), host
    for host in ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[::1"):
        assert not found.knows(host), host
    assert read_origins("", local=True).knows("evil.example")


def test_origins_that_cannot_be_meant_are_refused() -> None:
    for text in ("app.example", "https://app.example/path", "ftp://a", "https://a, b"):
        with pytest.raises(SettingError, match="--origins: expected"):
            read_origins(text)
    with pytest.raises(SettingError, match="in a cookie"):
        read_origins("*", credentials=True)
    anyone = read_origins("*")
    assert anyone.allows("https://any", "x") and anyone.allows("null", "x")
    assert "Access-Control-Allow-Credentials" not in anyone.headers("https://any")
    assert "Access-Control-Allow-Credentials" in Origins(credentials=True).headers("https://a")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=20))
def test_no_text_breaks_the_spelling_of_an_origin(text: str) -> None:
    found = normal("https://" + text)
    assert found is None or normal(found) == found


@pytest.mark.parametrize(
    ("peer", "forwarded", "proxies", "client"),
    [
        ("9.9.9.9", "1.1.1.1", "", "9.9.9.9"),
        ("9.9.9.9", "1.1.1.1", "10.0.0.0/8", "9.9.9.9"),
        ("10.0.0.1", "1.1.1.1", "10.0.0.0/8", "1.1.1.1"),
        ("10.0.0.1", "6.6.6.6, 1.1.1.1, 10.2.2.2", "10.0.0.0/8", "1.1.1.1"),
        ("10.0.0.1", "", "10.0.0.0/8", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.0/8", "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, nonsense", "10.0.0.0/8", "10.0.0.1"),
        ("::1", "2001:db8::1", "::1", "2001:db8::1"),
    ],
)
def test_only_our_own_proxies_say_whose_request_it_is(peer: str, forwarded: str, proxies: str, client: str) -> None:
    assert client_address(peer, forwarded, read_networks(proxies)) == client


def test_loopback_is_this_machine_and_no_other() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "app.localhost")))
    assert not any(map(is_loopback, ("::", "10.0.0.1", "localhost.example", "", "x")))
    with pytest.raises(SettingError, match="--trusted-proxies"):
        read_networks("proxy.example")


def test_a_bucket_gives_its_burst_then_its_rate() -> None:
    bucket = Bucket(2, 3, 0.0)
    assert [bucket.take(0.0) == 0 for _ in range(4)] == [True, True, True, False]
    assert bucket.take(0.0) == 0.5
    assert bucket.take(0.5) == 0 and bucket.take(0.5) > 0
    assert bucket.take(-100.0) > 0
    rates = Rates(2, 3)
    for n in range(1000):
        assert rates.take(f"user {n}", n * 0.01) == 0
    assert [rates.take("one", 10.0) == 0 for _ in range(4)] == [True, True, True, False]
    assert rates.take("other", 100.0) == 0 and len(rates) == 1


def identity(**claims: object) -> Identity:
    return Identity(claims, Rights(NOTHING, claims), 1e9)


def test_a_revoked_subject_is_let_in_again_with_a_newer_token_only() -> None:
    revoked = Revoked()
    assert revoked.learn({"sub:a": (5_000, 9_000), "jti:t": (5_000, 9_000)}, 5_000)
    assert revoked.loaded
    assert revoked.includes(identity(sub="a", iat=4)) and revoked.includes(identity(sub="a", iat=5))
    assert revoked.includes(identity(sub="a")) and not revoked.includes(identity(sub="a", iat=6))
    assert revoked.includes(identity(sub="b", iat=6, jti="t"))
    assert not revoked.includes(identity(sub="b", iat=1)) and not revoked.includes(identity())
    assert not revoked.learn({"sub:a": (5_000, 9_000)}, 6_000)
    assert revoked.lost({"sub:a": (5_000, 9_000)}, 6_000) == {"jti:t": (5_000, 9_000)}
    assert revoked.lost({"sub:a": (4_000, 9_000), "jti:t": (5_000, 9_000)}, 6_000) == {"sub:a": (5_000, 9_000)}
    revoked.learn({}, 9_000)
    assert not revoked.includes(identity(sub="a")) and revoked.lost({}, 9_000) == {}
