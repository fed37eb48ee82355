"""Where Redis is: what a URL spells, and what an unusable one is told."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from tailrace.errors import SettingError
from tailrace.settings import Settings
from tailrace.store.connection.address import Address, NotAnAddress


def test_one_server_is_opened_with_the_url_as_it_was_given() -> None:
    url = "rediss://user:pw@host:6380/3?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required"
    found = Address.parse(url)
    assert (found.kind, [(seed.name, seed.url) for seed in found.seeds]) == ("server", [("host:6380", url)])
    assert [seed.name for seed in Address.parse("redis://").seeds] == ["localhost:6379"]
    assert [seed.name for seed in Address.parse("unix://u:p@/run/redis.sock?db=2").seeds] == ["unix:/run/redis.sock"]


def test_sentinels_have_credentials_of_their_own_and_name_a_master() -> None:
    found = Address.parse(
        "rediss+sentinel://user:p%40ss@h1,[::1]:26380/my%20master/2?ssl_ca_certs=%2Fca.pem&sentinel_password=s%2Fx"
    )
    assert (found.kind, found.master) == ("sentinel", "my master")
    assert [seed.name for seed in found.seeds] == ["h1:26379", "[::1]:26380"]
    assert found.seeds[0].url == "rediss://:s%2Fx@h1:26379?ssl_ca_certs=%2Fca.pem"
    assert found.node("10.0.0.1", 6379).url == "rediss://user:p%40ss@10.0.0.1:6379/2?ssl_ca_certs=%2Fca.pem"


def test_a_cluster_is_found_through_any_of_its_nodes() -> None:
    found = Address.parse("redis+cluster://:pw@h1:7000,h2:7001")
    assert [seed.url for seed in found.seeds] == ["redis://:pw@h1:7000/0", "redis://:pw@h2:7001/0"]
    assert found.node("::1", 7002).url == "redis://:pw@[::1]:7002/0"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:6379", "redis\\+sentinel://"),
        ("http://localhost", "redis://localhost"),
        ("redis://host:port", "1 to 65535"),
        ("redis://host:70000", "1 to 65535"),
        ("redis://h1,h2", "redis\\+sentinel://… or redis\\+cluster://…"),
        ("redis://host/mine", "database number"),
        ("redis+sentinel://h1", "name of the master"),
        ("redis+sentinel://h1/m/x", "database number"),
        ("redis+cluster://h1/1", "no database but 0"),
        ("redis+cluster://h1?db=1", "no database but 0"),
        ("redis://h1?ssl_ca_certs=/ca.pem", "rediss"),
        ("rediss://h1?ssl_cacerts=/ca.pem", "ssl_ca_certs.*not 'ssl_cacerts'"),
        ("rediss://h1?ssl_cert_reqs=maybe", "none, optional or required"),
        ("redis://h1?sentinel_password=x", "not 'sentinel_password'"),
        ("redis://h1?socket_timeout=soon", "a number as socket_timeout"),
        ("unix://", "socket file"),
        ("redis://[::1", "redis://localhost"),
    ],
)
def test_an_unusable_url_is_told_what_was_expected(url: str, says: str) -> None:
    with pytest.raises(NotAnAddress, match=says):
        Address.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:sec/ret@host",
        "redis://:sec@ret@h1:port",
        "redis://user:secret@h1,h2",
        "redis+sentinel://u:secret@h1:1,h2:2",
        "redis+sentinel://h1/m/x?sentinel_password=secret",
        "redis+cluster://h1/1?password=sec%20ret&ssl_password=secret",
    ],
)
def test_no_password_stands_in_an_error(url: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.read(Namespace(redis=url), {})
    assert "sec" not in str(caught.value) and "ret" not in str(caught.value), caught.value


def test_no_password_stands_in_what_is_printed_of_an_address() -> None:
    for url in (
        "redis://u:secret@h",
        "redis+cluster://u:secret@h",
        "redis+sentinel://u:secret@h/m?sentinel_password=secret",
    ):
        assert "secret" not in repr(Address.parse(url))


def redis_url(url: str, **passwords: str) -> str:
    variables = {f"TAILRACE_REDIS_{name}": value for name, value in passwords.items()}
    return Settings.read(Namespace(), {"TAILRACE_REDIS": url, **variables}).redis()


def test_passwords_that_come_from_elsewhere_are_put_where_the_url_would_hold_them(tmp_path: Path) -> None:
    secret, encoded = "p4ss:w@rd/ü,?#", "p4ss%3Aw%40rd%2F%C3%BC%2C%3F%23"
    assert redis_url("redis://host/0", PASSWORD=secret) == f"redis://:{encoded}@host/0"
    assert redis_url("rediss://ann@h:1/2?ssl_ca_certs=/ca", PASSWORD=secret) == (
        f"rediss://ann:{encoded}@h:1/2?ssl_ca_certs=/ca"
    )
    assert redis_url("unix://ann@/run/redis.sock?db=2", PASSWORD=secret) == f"unix://ann:{encoded}@/run/redis.sock?db=2"
    assert redis_url("redis+cluster://h1,[::1]:7001", PASSWORD=secret) == f"redis+cluster://:{encoded}@h1,[::1]:7001"
    file = tmp_path / "sentinels"
    file.write_text(secret + "\n")
    found = Address.parse(
        redis_url("redis+sentinel://ann@h1/m?client_name=x", PASSWORD=secret, SENTINEL_PASSWORD_FILE=str(file))
    )
    assert found.seeds[0].url == f"redis://:{encoded}@h1:26379"
    assert found.node("h2", 1).url == f"redis://ann:{encoded}@h2:1/0?client_name=x"
    assert redis_url("redis://ann:own@host/0") == "redis://ann:own@host/0"


@pytest.mark.parametrize(
    ("url", "name", "says"),
    [
        ("redis://ann:c4nary@host", "PASSWORD", "_PASSWORD: expected the password in one place"),
        ("redis://host?password=c4nary", "PASSWORD", "_PASSWORD: expected the password in one place"),
        ("redis+sentinel://h/m?sentinel_password=c4nary", "SENTINEL_PASSWORD", "the password in one place"),
        ("redis://host", "SENTINEL_PASSWORD", "_SENTINEL_PASSWORD: expected an address of Sentinels"),
    ],
)
def test_a_password_in_two_places_or_without_use_is_refused(url: str, name: str, says: str) -> None:
    with pytest.raises(SettingError, match=says) as caught:
        redis_url(url, **{name: "c4nary"})
    assert "c4nary" not in str(caught.value)


def test_an_address_shows_no_password() -> None:
    assert "c4nary" not in repr(Address.parse("redis://ann:c4nary@host/0?password=c4nary"))
    assert "c4nary" not in repr(Address.parse("redis+sentinel://ann:c4nary@h/m?sentinel_password=c4nary"))
    assert "c4nary" not in repr(Address.parse("redis+cluster://ann:c4nary@h"))
