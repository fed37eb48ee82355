"""The file of `--kafka-config`, read and checked: what each client of Kafka is told beside its own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.credentials.given import GivenEntries
from tailrace.errors import SettingError
from tailrace.kafka.config.entries import ALIASES, ASSIGNOR, ASSIGNORS, CONSUMER, FIXED, PASSED, SWITCH, WHOLE, Passed
from tailrace.kafka.config.security import Secrets, Security, read_security
from tailrace.properties import Entry, read_properties

# The most requests under way at which an idempotent producer keeps records in order.
_IN_FLIGHT = 5


@dataclass(frozen=True)
class KafkaConfig:
    """How clients connect, and what they are told beside. Without a file: no TLS, no password, nothing beside.

    `servers` are the brokers that the file names, and `files` all files that it was read from.
    """

    servers: str = ""
    security: Security = field(default_factory=Security)
    passed: Mapping[Passed, str] = field(default_factory=dict)
    assignor: str = ""
    idempotent: bool = True
    files: tuple[Path, ...] = ()

    @classmethod
    def read(cls, path: str, secrets: Secrets, files: tuple[Path, ...] = ()) -> KafkaConfig:
        """Read a file. Raises SettingError, with file and line, for what can't be used.

        files: those that the secrets come from.
        """
        given = GivenEntries(path, read_properties(path), ALIASES)
        servers = given.text("bootstrap.servers") or ""
        security = read_security(given, secrets)
        assignor = _assignor(given)
        for entry in given.left:
            if (why := FIXED.get(entry.name)) is not None:
                raise given.wrong(entry, f"expected no such entry, because {why}: remove it")
        taken = {one: given.take(*sorted(one.names)) for one in PASSED}
        passed = {one: _value(given, one, entry) for one, entry in taken.items() if entry is not None}
        if given.left:
            known = {name for one in PASSED for name in one.names} | _SECURITY
            raise given.unknown(given.left[0], known, "docs/kafka-config.md")
        values = {name: value for one, value in passed.items() for name in one.names}
        idempotent = values.get("acks", "all") in ("all", "-1")
        if idempotent and int(values.get("max.in.flight.requests.per.connection", "1")) > _IN_FLIGHT:
            raise SettingError(
                f"{path}: max.in.flight.requests.per.connection: expected {_IN_FLIGHT} at most, because more would "
                "write records out of order after a retry"
            )
        return cls(servers, security, passed, assignor, idempotent, (Path(path), *files, *given.files))

    def librdkafka(self, client: str) -> dict[str, str | int | float | bool | None]:
        """The settings of librdkafka for a client of a kind."""
        found: dict[str, str | int | float | bool | None] = {**self.security.librdkafka()}
        for one, value in self.passed.items():
            if one.librdkafka and client in one.clients:
                found[one.librdkafka] = str(int(value) // one.unit) if one.unit > 1 else value
        if client == CONSUMER and self.assignor:
            found[ASSIGNOR] = self.assignor
        return found

    def java(self, client: str) -> tuple[dict[str, str], dict[str, str]]:
        """The settings of Java's client of a kind: those that anyone may see, and those that hold secrets."""
        open_, kept = self.security.java()
        open_ |= {one.java: value for one, value in self.passed.items() if one.java and client in one.clients}
        return open_, kept


def _assignor(given: GivenEntries) -> str:
    """librdkafka's name of an assignor, which a file may also call by the name of its Java class."""
    entry = given.take(ASSIGNOR)
    if entry is None:
        return ""
    names = [ASSIGNORS.get(one.strip(), one.strip()) for one in entry.value.split(",")]
    for name in names:
        if name not in ASSIGNORS.values():
            raise given.wrong(
                entry, f"expected {', '.join(ASSIGNORS.values())}, or Java's classes of these, got {name!r}"
            )
    if "cooperative-sticky" in names and len(names) > 1:
        raise given.wrong(entry, "expected cooperative-sticky alone, because it does not mix with others, got several")
    return ",".join(names)


def _value(given: GivenEntries, one: Passed, entry: Entry) -> str:
    value = entry.value.strip()
    if one.kind == WHOLE:
        good = value.lstrip("-").isascii() and value.lstrip("-").isdigit()
    elif one.kind == SWITCH:
        value = value.lower()
        good = value in ("true", "false")
    else:
        value = value.lower() if one.choices else value
        good = value in one.choices if one.choices else bool(value)
    if not good:
        raise given.wrong(entry, f"expected {' or '.join(one.choices) or one.kind}, got {value!r}")
    return value


_SECURITY = frozenset(
    {
        "bootstrap.servers",
        "security.protocol",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "https.ca.location",
        "https.ca.pem",
    }
)
