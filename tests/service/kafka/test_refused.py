"""What Kafka refuses: each refusal has a text of its own, soon, which names the file or the right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from running import eventually
from secured_kafka import PASSWORD, Secured
from tailrace.cli import main
from tailrace.dev.certificates import Authority
from tailrace.kafka.brokers import Brokers
from tailrace.settings import Settings

WRONG = "another password"
MakeFile = Callable[[Secured, Path], Path]


def other_authority(directory: Path) -> str:
    """The file of an authority that the broker does not know, with a certificate of it for the client beside."""
    Authority.kept(directory / "other").issue("movies").write(directory / "stranger.pem")
    return str(directory / "other" / "ca.pem")


def stranger(directory: Path) -> str:
    other_authority(directory)
    return str(directory / "stranger.pem")


def at(listener: str, of: str, mechanism: str = "") -> MakeFile:
    """A file that is right for one listener, with the address of another one."""
    return lambda secured, _: secured.file(of, mechanism, bootstrap_servers=secured.address(listener))


def with_password(mechanism: str, password: str) -> MakeFile:
    return lambda secured, _: secured.file("BOTH", mechanism, java=False, sasl_password=password)


REFUSED: dict[str, tuple[MakeFile, str]] = {
    **{
        f"wrong password, {mechanism}": (
            with_password(mechanism, WRONG),
            rf"the brokers refuse user 'movies' \({mechanism}\): expected the password that they know.* in FILE",
        )
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    },
    "wrong client secret": (
        lambda secured, _: secured.file("BOTH", "OAUTHBEARER", java=False, sasl_oauthbearer_client_secret=WRONG),
        r"OAUTHBEARER failed: .*invalid_client.* see the client id, its secret and the token endpoint in FILE",
    ),
    "identity provider of another authority": (
        lambda secured, here: secured.file("BOTH", "OAUTHBEARER", java=False, https_ca_location=other_authority(here)),
        r"OAUTHBEARER failed: .*certificate.*: see the client id, its secret and the token endpoint in FILE",
    ),
    "broker of another authority": (
        lambda secured, here: secured.file("TLS", ssl_truststore_location=other_authority(here)),
        r"is not trusted .* expected one signed by those in \S+/other/ca.pem: correct ssl.truststore.location .*FILE",
    ),
    "expired certificate": (
        lambda secured, _: secured.file("EXPIRED"),
        r"the certificate of \S+ has expired: renew it on the broker",
    ),
    "certificate for another host": (
        lambda secured, _: secured.file("ELSEWHERE"),
        r"the certificate of \S+ is for another address: connect by a name that is in it",
    ),
    "no client certificate": (
        lambda secured, _: secured.file("MUTUAL", ssl_keystore_location=None, ssl_keystore_type=None),
        r"wants a certificate of its clients: expected ssl.keystore.location .* got none .*FILE",
    ),
    "client certificate of another authority": (
        lambda secured, here: secured.file("MUTUAL", ssl_keystore_location=stranger(here)),
        r"refuses the client's certificate \S+/stranger.pem",
    ),
    "PLAINTEXT to TLS": (
        at("TLS", of="PLAINTEXT"),
        r"speaks TLS: expected security.protocol=SSL or SASL_SSL, got PLAINTEXT .*FILE",
    ),
    "PLAINTEXT to TLS that wants a certificate": (
        at("MUTUAL", of="PLAINTEXT"),
        r"speaks TLS: expected security.protocol=SSL or SASL_SSL, got PLAINTEXT .*FILE",
    ),
    "TLS to PLAINTEXT": (
        at("PLAINTEXT", of="TLS"),
        r"does not speak TLS: correct security.protocol, or the port .*FILE",
    ),
    "PLAINTEXT to a password": (
        at("SASL", of="PLAINTEXT"),
        r"wants a password: expected security.protocol=SASL_PLAINTEXT, got PLAINTEXT .*FILE",
    ),
    "TLS to a password": (
        at("BOTH", of="TLS"),
        r"wants a password: expected security.protocol=SASL_SSL, got SSL .*FILE",
    ),
    "a password to PLAINTEXT": (
        at("PLAINTEXT", of="SASL", mechanism="PLAIN"),
        r"want no password at this address: expected security.protocol=PLAINTEXT.* got SASL_PLAINTEXT in FILE",
    ),
    "a password to TLS": (
        at("BOTH", of="SASL", mechanism="SCRAM-SHA-256"),
        r"speaks TLS: expected security.protocol=SASL_SSL, got SASL_PLAINTEXT .*FILE",
    ),
    "TLS and a password to PLAINTEXT": (
        at("SASL", of="BOTH", mechanism="SCRAM-SHA-256"),
        r"does not speak TLS: correct security.protocol, or the port .*FILE",
    ),
}


def status(app: str, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `tailrace status` says of what went wrong."""
    capsys.readouterr()
    assert main(["status", app, "--kafka-config", str(file), "--redis", "redis://127.0.0.1:1/0"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    *_, last = said.err.splitlines()
    return last


@pytest.mark.parametrize("case", REFUSED)
def test_a_command_says_why_kafka_refuses_it_and_names_the_file(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    make, expected = REFUSED[case]
    file = make(secured, tmp_path)
    said = status("movies", file, capsys)
    assert re.search(expected.replace("FILE", re.escape(str(file))), said), said
    assert WRONG not in said and PASSWORD not in said


def test_a_command_names_the_right_that_is_missing(
    secured: Secured, fresh: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"tailrace.movies-{fresh}.catalog"
    with secured.only("ada", ResourceType.TOPIC, topic):
        file = secured.file("BOTH", "SCRAM-SHA-512")
        eventually(lambda: "refuse" in status(f"movies-{fresh}", file, capsys), "the broker knows the new rule")
        said = status(f"movies-{fresh}", file, capsys)
    assert re.search(rf"topic {topic}: .*refuse user 'movies' .*allow Describe on it", said), said


def test_a_refusal_stands_in_health_while_it_lasts_and_ends_when_the_file_is_corrected(secured: Secured) -> None:
    file = secured.file("BOTH", "SCRAM-SHA-512", java=False, sasl_password=WRONG)
    brokers = Brokers.of(Settings({"kafka-config": str(file)}))
    producer = brokers.producer("ratings", {})

    def problems() -> list[str]:
        producer.poll(0)
        return brokers.problems()

    eventually(lambda: problems() != [], "the refusal is known", 30)
    (said,) = problems()
    assert str(file) in said and WRONG not in said
    secured.file("BOTH", "SCRAM-SHA-512", java=False).replace(file)
    eventually(lambda: problems() == [], "the refusal has ended", 60)
