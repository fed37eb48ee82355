"""Tokens of `tailrace token`: a gateway with the same secret believes them, and allows what the flags say."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from tailrace.access.identity import Identity
from tailrace.access.issuing import write_rights
from tailrace.access.keys import OneKey, read_key
from tailrace.access.patterns import ColumnPatterns, Pattern
from tailrace.access.rights import Grant
from tailrace.access.tokens import Terms, Tokens
from tailrace.cli import main
from tailrace.errors import SettingError

SECRET = "a secret of a gateway, long enough for its algorithm"
TERMS = Terms("HS256")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of `tailrace dev --secure`."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "jwt.key").write_text(SECRET + "\n")
    return tmp_path


def believed(text: str, secret: str = SECRET, terms: Terms = TERMS) -> Identity:
    """What a gateway makes of a token."""
    tokens = Tokens(terms, OneKey(read_key(secret.encode(), "HS256", "the key")))
    return asyncio.run(tokens.identity(text.strip()))


def test_a_token_allows_what_the_flags_say_and_no_more(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["token", "--data", str(data), "--sub", "ann", "--ttl", "5m", "--views", "orders, public-*"]
    command += ["--key", "7", "--key", "eu/*", "--key", '["7", "*"]', "--where", "customer = {sub}"]
    command += ["--feeds", "notices", "--client", "{sub}", "--topics", "ratings", "--claim", 'roles=["a"]']
    assert main([*command, "--claim", "org=seven"]) == 0
    found = believed(capsys.readouterr().out)
    assert (found.subject, found.claims["roles"], found.claims["org"]) == ("ann", ["a"], "seven")
    assert found.token is not None and found.issued is not None
    assert 290 < found.until - 10 - time.time() <= 300
    keys = (Pattern("7"), Pattern("eu/", open=True), ColumnPatterns((Pattern("7"), Pattern("", open=True))))
    assert found.rights.view("orders") == found.rights.view("public-1") == Grant(keys, "customer = 'ann'")
    assert found.rights.feed("notices") == Grant((Pattern("ann"),))
    assert found.rights.topic("ratings") and not found.rights.operations
    for refused in (found.rights.view("others"), found.rights.feed("others"), found.rights.topic("others") or None):
        assert refused is None


def test_a_token_for_everything_is_asked_for(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--data", str(data), "--all"]) == 0
    rights = believed(capsys.readouterr().out).rights
    assert rights.view("any") == rights.feed("any") == Grant()
    assert rights.topic("any") and rights.operations


def test_the_gateways_own_settings_say_how_it_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET[::-1])
    named = ["--jwt-issuer", "https://here", "--jwt-audience", "tailrace", "--rights-claim", "allowed"]
    assert main(["token", "--all", "--jwt-key", str(key), *named]) == 0
    terms = Terms("HS256", issuer="https://here", audience="tailrace", rights_claim="allowed")
    assert believed(capsys.readouterr().out, SECRET[::-1], terms).rights.operations
    monkeypatch.setenv("TAILRACE_JWT_SECRET", SECRET)
    assert main(["token", "--operations"]) == 0
    assert believed(capsys.readouterr().out).rights.operations


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "expected what the token allows, got nothing"),
        (["--key", "7"], "--key: expected --views with it"),
        (["--feeds", "notices", "--where", "a = 1"], "--where: expected --views with it"),
        (["--views", "orders", "--client", "7"], "--client: expected --feeds with it"),
        (["--views", "a*b"], "views.a*b: expected a name, or the beginning of one and *"),
        (["--views", "orders", "--where", "a ="], "views.orders.where: "),
        (["--all", "--views", "orders"], "--all: expected no other right with it"),
        (["--all", "--ttl", "5"], "--ttl: expected a duration such as 1h, got '5'"),
        (["--all", "--ttl", "5ms"], "--ttl: expected a second at least"),
        (["--all", "--claim", "org"], "--claim: expected NAME=VALUE, got 'org'"),
        (["--all", "--claim", "exp=9"], "--claim exp: expected another claim"),
        (["--all", "--jwt-algorithm", "RS256"], "--jwt-algorithm: expected HS256, got RS256"),
        (["--all", "--jwt-key", "/nowhere"], "--jwt-key: expected a file that can be read, got '/nowhere'"),
    ],
)
def test_what_can_not_be_signed_is_refused_with_what_was_expected(
    data: Path, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    assert main(["token", "--data", str(data), *options]) == 1
    told = capsys.readouterr()
    assert says in told.err and told.out == ""


def test_without_a_secret_it_says_where_one_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--data", str(tmp_path), "--all"]) == 1
    told = capsys.readouterr().err
    assert f"none in {tmp_path}/locks/jwt.key" in told and "tailrace dev --secure" in told


def test_rights_are_those_of_the_documented_form() -> None:
    found = write_rights(views=["orders"], keys=["7"], feeds=["notices"], topics=["ratings"], operations=True)
    expected = {"views": {"orders": ["7"]}, "feeds": {"notices": True}, "topics": ["ratings"], "operations": True}
    assert json.loads(json.dumps(found)) == expected
    with pytest.raises(SettingError, match="got nothing"):
        write_rights()
