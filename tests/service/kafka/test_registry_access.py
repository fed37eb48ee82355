"""A registry behind TLS, passwords and tokens: who is let in, what is said otherwise, and what changes on disk."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from registry_front import RegistryFront, server_context
from registry_server import RegistryServer
from tailrace.avro.registry import Registry
from tailrace.dev.certificates import Authority, Issued
from tailrace.errors import SettingError, TailraceError, Unreachable
from tailrace.settings import Settings

PASSWORD, TOKEN = "p4ss:w@rd/ü", "t0ken.c4nary"
USER = httpx.BasicAuth("ann", PASSWORD)._auth_header
BEARER = f"Bearer {TOKEN}"
LONG_AGO = datetime.now(UTC) - timedelta(days=30)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new()


@pytest.fixture(scope="module")
def subject(registry: RegistryServer) -> str:
    """A subject that has a schema."""
    name = "doors-value"
    httpx.post(f"{registry.url}/subjects/{name}/versions", json={"schema": '"string"'}).raise_for_status()
    return name


@pytest.fixture
def front(registry: RegistryServer) -> Iterator[RegistryFront]:
    front = RegistryFront(registry)
    yield front
    front.stop()


class Doors:
    """Settings of a process, with files in a directory, and what a registry answers to one that has them."""

    def __init__(self, directory: Path, subject: str) -> None:
        self.directory = directory
        self.subject = subject
        self.environment: dict[str, str] = {}

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def config(self, *lines: str) -> None:
        path = self.file("registry.properties", "\n".join(lines) + "\n")
        self.environment["TAILRACE_REGISTRY_CONFIG"] = str(path)

    def set(self, **variables: str) -> None:
        self.environment |= {f"TAILRACE_REGISTRY{name}": value for name, value in variables.items()}

    def registry(self) -> Registry:
        found = Registry.of(Settings.read(Namespace(), self.environment), timeout=10)
        assert found is not None
        return found

    def require_open(self, registry: Registry | None = None) -> None:
        assert (registry or self.registry()).latest(self.subject)[1] == '"string"'

    def refused(self, registry: Registry | None = None) -> str:
        """What a process says that is not let in. It waits and tries again: credentials may be corrected meanwhile."""
        with pytest.raises(TailraceError) as caught:
            (registry or self.registry()).latest(self.subject)
        assert isinstance(caught.value, Unreachable), repr(caught.value)
        said, chain = str(caught.value), repr(caught.value.__context__)
        assert "\n" not in said and not any(secret in said + chain for secret in (PASSWORD, "p4ss", TOKEN))
        return said


@pytest.fixture
def doors(tmp_path: Path, subject: str) -> Doors:
    return Doors(tmp_path, subject)


def test_a_user_is_let_in_wherever_its_password_is(front: RegistryFront, doors: Doors) -> None:
    front.allowed = {USER}
    doors.set(**{"": front.url(login="ann:p4ss%3Aw%40rd%2F%C3%BC")})
    doors.require_open()
    doors.set(**{"": front.url(login="ann"), "_PASSWORD": PASSWORD})
    doors.require_open()
    doors.environment.clear()
    doors.config(f"schema.registry.url={front.url()}", f"schema.registry.basic.auth.user.info=ann:{PASSWORD}")
    doors.require_open()
    doors.config(
        f"url={front.url()}", "basic.auth.credentials.source=USER_INFO", f"basic.auth.user.info=ann:{PASSWORD}"
    )
    doors.require_open()
    doors.config(f"schema.registry.url={front.url(login='ann')}", "basic.auth.credentials.source=URL")
    doors.set(_PASSWORD_FILE=str(doors.file("password", PASSWORD + "\n")))
    doors.require_open()
    assert front.sent == [USER] * 5


def test_a_token_is_let_in_wherever_it_is(front: RegistryFront, doors: Doors) -> None:
    front.allowed = {BEARER}
    doors.set(**{"": front.url(), "_TOKEN": TOKEN})
    doors.require_open()
    doors.environment.clear()
    doors.config(
        f"schema.registry.url={front.url()}",
        "bearer.auth.credentials.source=STATIC_TOKEN",
        f"bearer.auth.token={TOKEN}",
        "bearer.auth.logical.cluster=lsrc-1",
    )
    doors.require_open()
    doors.config("bearer.auth.credentials.source=STATIC_TOKEN")
    doors.set(**{"": front.url(), "_TOKEN_FILE": str(doors.file("token", TOKEN + "\n"))})
    doors.require_open()


@pytest.mark.parametrize("names", ["java", "java stores", "python"])
def test_a_registry_with_an_authority_of_its_own_wants_a_certificate(
    front: RegistryFront, doors: Doors, authority: Authority, names: str
) -> None:
    front.context = server_context(doors.directory, authority.issue("registry"), trusts=authority.certificate)
    own = authority.issue("pipeline")
    ca, pem = doors.file("ca.pem", authority.certificate), doors.file("client.pem", own.both)
    certificate, key = doors.file("client.crt", own.certificate), doors.file("client.key", own.key)
    if names == "python":
        lines = [f"ssl.ca.location={ca}", f"ssl.certificate.location={certificate}", f"ssl.key.location={key}"]
    elif names == "java":
        lines = [f"schema.registry.ssl.truststore.location={ca}", "schema.registry.ssl.truststore.type=PEM"]
        lines += [f"schema.registry.ssl.keystore.location={pem}", "schema.registry.ssl.keystore.type=PEM"]
    else:
        shown, kept = doors.file("client.p12", store(own)), doors.file("ca.p12", trust(authority.certificate))
        lines = [f"schema.registry.ssl.truststore.location={kept}", "schema.registry.ssl.truststore.password=shown"]
        lines += [f"schema.registry.ssl.keystore.location={shown}", "schema.registry.ssl.keystore.password=kept"]
    doors.config(f"schema.registry.url={front.url()}", *lines)
    doors.require_open()


@pytest.mark.parametrize("place", ["file", "variable", "file of its own"])
def test_the_clients_key_may_be_encrypted_wherever_its_password_is(
    front: RegistryFront, doors: Doors, authority: Authority, place: str
) -> None:
    front.context = server_context(doors.directory, authority.issue("registry"), trusts=authority.certificate)
    front.allowed = {BEARER}
    own = authority.issue("pipeline")
    key = load_pem_private_key(own.key.encode(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    ca, pem = doors.file("ca.pem", authority.certificate), doors.file("client.pem", locked + own.certificate.encode())
    lines = [f"url={front.url()}", f"ssl.ca.location={ca}", f"ssl.keystore.location={pem}"]
    doors.set(_TOKEN=TOKEN)
    doors.config(*lines)
    with pytest.raises(SettingError, match=r"registry\.properties:3: .*expected the password of the key"):
        doors.registry()
    wrong, right = ([f"ssl.key.password={one}"] for one in ("p4ss", PASSWORD))
    if place == "file":
        doors.config(*lines, *wrong)
    elif place == "variable":
        doors.set(_KEY_PASSWORD="p4ss")
    else:
        doors.set(_KEY_PASSWORD_FILE=str(doors.file("password", "p4ss")))
    with pytest.raises(SettingError, match="got another password, or a damaged key") as caught:
        doors.registry()
    assert "p4ss" not in str(caught.value)
    if place == "file":
        doors.config(*lines, *right)
    elif place == "variable":
        doors.set(_KEY_PASSWORD=PASSWORD)
    else:
        doors.file("password", PASSWORD + "\n")
    doors.require_open()


def test_another_address_that_a_registry_names_gets_no_password(
    front: RegistryFront, registry: RegistryServer, doors: Doors
) -> None:
    other = RegistryFront(registry)
    front.allowed, front.moved_to = {USER}, other.url()
    doors.set(**{"": front.url(login="ann"), "_PASSWORD": PASSWORD})
    doors.require_open()
    assert (front.sent, other.sent) == ([USER], [None])
    other.stop()


def test_a_wrong_password_or_token_is_one_line_that_says_where_it_is(front: RegistryFront, doors: Doors) -> None:
    front.allowed = {USER}
    doors.set(**{"": front.url(login="ann:p4ss")})
    assert "answered 401: expected credentials" in (said := doors.refused()) and "correct --registry" in said
    doors.set(**{"": front.url(login="ann"), "_PASSWORD": "p4ss"})
    assert "user 'ann'; correct TAILRACE_REGISTRY_PASSWORD" in doors.refused()
    doors.environment.clear()
    doors.config(f"schema.registry.url={front.url()}", "# the user", "basic.auth.user.info=ann:p4ss")
    assert "registry.properties:3" in doors.refused()
    doors.config(f"schema.registry.url={front.url()}", f"bearer.auth.token={TOKEN}")
    assert "a token; correct" in (said := doors.refused()) and "registry.properties:2" in said
    doors.config(f"schema.registry.url={front.url()}")
    assert "got none" in doors.refused()


def test_what_is_wrong_with_a_certificate_is_one_line_that_names_it(
    front: RegistryFront, doors: Doors, authority: Authority
) -> None:
    ca, other = doors.file("ca.pem", authority.certificate), doors.file("other.pem", Authority.new().certificate)
    front.context = server_context(doors.directory, authority.issue("registry"))
    url = front.url()
    doors.set(**{"": url})
    assert "not trusted" in (said := doors.refused()) and "this machine" in said
    doors.environment.clear()
    doors.config(f"url={url}", f"ssl.ca.location={other}")
    assert "not trusted" in (said := doors.refused()) and str(other) in said
    doors.config(f"url={url}", f"ssl.ca.location={ca}")
    doors.require_open()
    doors.config(f"url={url.replace('https', 'http')}")
    assert "https" in doors.refused()

    front.context = server_context(doors.directory, authority.issue("registry", ["elsewhere.test"]))
    doors.config(f"url={url}", f"ssl.ca.location={ca}")
    assert "certificate for other hosts: expected one for 127.0.0.1" in doors.refused()
    doors.config(f"url={url}", f"ssl.ca.location={ca}", "ssl.endpoint.identification.algorithm=")
    doors.require_open()

    front.context = server_context(doors.directory, authority.issue("registry", begins=LONG_AGO, ends=LONG_AGO))
    doors.config(f"url={url}", f"ssl.ca.location={ca}")
    assert "has expired" in doors.refused()

    front.context = None
    assert "does not speak TLS" in doors.refused()


def test_a_client_without_the_certificate_that_is_wanted_is_told(
    front: RegistryFront, doors: Doors, authority: Authority
) -> None:
    front.context = server_context(doors.directory, authority.issue("registry"), trusts=authority.certificate)
    ca = doors.file("ca.pem", authority.certificate)
    doors.config(f"url={front.url()}", f"ssl.ca.location={ca}")
    assert "got none" in (said := doors.refused()) and "ssl.keystore.location" in said
    foreign = doors.file("foreign.pem", Authority.new().issue("pipeline").both)
    doors.config(f"url={front.url()}", f"ssl.ca.location={ca}", f"ssl.keystore.location={foreign}")
    assert f"got {foreign} (CN=pipeline)" in (said := doors.refused()) and "ssl.keystore.location" in said


def test_the_next_request_uses_what_has_changed_on_disk(
    front: RegistryFront, doors: Doors, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    front.allowed = {USER}
    front.context = server_context(doors.directory, authority.issue("registry"))
    password, ca = doors.file("password", "old"), doors.file("ca.pem", authority.certificate)
    doors.config(f"url={front.url(login='ann')}", f"ssl.ca.location={ca}")
    doors.set(_PASSWORD_FILE=str(password))
    registry = doors.registry()
    assert "correct TAILRACE_REGISTRY_PASSWORD" in doors.refused(registry)
    password.write_text(PASSWORD)
    doors.require_open(registry)

    renewed = Authority.new()
    front.context = server_context(doors.directory, renewed.issue("registry"), trusts=renewed.certificate)
    assert "not trusted" in doors.refused(registry)
    ca.write_text(renewed.certificate)
    assert "ssl.keystore.location" in doors.refused(registry)
    pem = doors.file("client.pem", renewed.issue("pipeline").both)
    doors.config(f"url={front.url(login='ann')}", f"ssl.ca.location={ca}", f"ssl.keystore.location={pem}")
    doors.require_open(registry)

    # What can't be used is not used, and said once.
    ca.write_text("damaged")
    doors.require_open(registry)
    doors.require_open(registry)
    assert sum("is not used" in line.message and "ca.pem" in line.message for line in caplog.records) == 1


def store(issued: Issued) -> bytes:
    key = load_pem_private_key(issued.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
    return pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, BestAvailableEncryption(b"kept"))  # type: ignore[arg-type]


def trust(certificate: str) -> bytes:
    found = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(certificate.encode()), b"ca")
    return pkcs12.serialize_java_truststore([found], BestAvailableEncryption(b"shown"))
