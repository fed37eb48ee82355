"""A broker with a listener for every way to connect, and the files with which clients connect to it.

The broker's own port has no security, and who connects there may do everything: tests prepare by it. Everyone else may
do what no ACL is about; `Secured.only` makes one.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from identity_provider import AUDIENCE, IdentityProvider
from relay import Relay
from running import eventually
from services import Services
from tailrace.dev.broker import JAVA_OPTIONS
from tailrace.dev.certificates import Authority, write_secret
from tailrace.dev.ports import LOOPBACK, free_port

USER = "movies"
PASSWORD = 'a "pass\\word" of = movies; ü'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Listener → protocol.
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    # These are wrong in one thing each.
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    # Clients reach it by a relay, and show a certificate. Its own, and whose it trusts, may be changed.
    "CHANGING": "SASL_SSL",
}
# Every way to connect: listener and mechanism.
WAYS = (
    ("PLAINTEXT", ""),
    ("TLS", ""),
    ("MUTUAL", ""),
    *(("SASL", mechanism) for mechanism in MECHANISMS),
    *(("BOTH", mechanism) for mechanism in MECHANISMS),
)
_MODULES = "org.apache.kafka.common.security"
_LOGINS = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
_SCRAMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


class Secured:
    """The broker, its authority and its identity provider."""

    def __init__(self, directory: Path, services: Services) -> None:
        self.directory = directory
        self.authority = Authority.kept(directory / "authority")
        self.ca = directory / "authority" / "ca.pem"
        self._files = count()
        self.provider = IdentityProvider(directory / "provider", self.authority.issue("provider"), {USER: PASSWORD})
        self.ports = {name: free_port() for name in LISTENERS}
        self.relay = Relay(self.ports["CHANGING"])
        port, controller = free_port(), free_port()
        own = f"PLAINTEXT://{LOOPBACK}:{port}"
        further = [f"{name}://{LOOPBACK}:{number}" for name, number in self.ports.items()]
        advertised = [f"{name}://{self.address(name)}" for name in self.ports]
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **LISTENERS}
        properties = {
            "listeners": ",".join([own, f"CONTROLLER://{LOOPBACK}:{controller}", *further]),
            "advertised.listeners": ",".join([own, *advertised]),
            "listener.security.protocol.map": ",".join(f"{name}:{one}" for name, one in protocols.items()),
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            # A connection is known to be refused at once: the default is a tenth of a second.
            "connection.failed.authentication.delay.ms": "0",
            **self._identities(),
            **self._logins(),
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.provider.keys_url}"
        self.broker = services.broker(port=port, properties=properties, java_options=(*JAVA_OPTIONS, allowed))
        self.admin = AdminClient({"bootstrap.servers": self.broker.address})
        self.set_password(USER, PASSWORD)

    def address(self, listener: str) -> str:
        """The bootstrap address of a listener."""
        if listener == "PLAINTEXT":
            return self.broker.address
        return f"{LOOPBACK}:{self.relay.port if listener == 'CHANGING' else self.ports[listener]}"

    def file(self, listener: str, mechanism: str = "", *, java: bool = True, **entries: str | None) -> Path:
        """A file for `--kafka-config`, in Java's names or librdkafka's.

        entries: further ones, or others, with underscores for dots; None takes one away.
        """
        found = self._entries(listener, mechanism, java=java)
        for name, value in entries.items():
            found[name.replace("_", ".")] = value or ""
            if value is None:
                del found[name.replace("_", ".")]
        file = self.directory / f"client-{next(self._files)}.properties"
        write_properties(file, found)
        return file

    def set_password(self, user: str, password: str) -> None:
        """Let a user log in by SCRAM with a password, and not with the one before."""
        # Kafka takes one mechanism of a user at a time.
        for mechanism in _SCRAMS.values():
            given = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            for pending in self.admin.alter_user_scram_credentials([given]).values():
                pending.result(30)

    @contextmanager
    def only(self, user: str, resource: ResourceType, name: str) -> Iterator[None]:
        """Meanwhile, only this user may use a resource."""
        acl = AclBinding(
            resource,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for pending in self.admin.create_acls([acl]).values():
            pending.result(30)
        try:
            yield
        finally:
            these = AclBindingFilter(
                resource,
                name,
                ResourcePatternType.LITERAL,
                None,  # type: ignore[arg-type]
                None,  # type: ignore[arg-type]
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
            for removed in self.admin.delete_acls([these]).values():
                removed.result(30)

    def change_authority(self, authority: Authority) -> None:
        """Have the listener CHANGING show a certificate of another authority, and trust that one alone."""
        number = next(self._files)
        own, trusted = (self.directory / f"changing-{what}-{number}.pem" for what in ("broker", "ca"))
        authority.issue("broker").write(own)
        trusted.write_text(authority.certificate)
        entries = [
            ConfigEntry(f"listener.name.changing.ssl.{name}", str(file), incremental_operation=AlterConfigOpType.SET)
            for name, file in (("keystore.location", own), ("truststore.location", trusted))
        ]
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
        listener = (LOOPBACK, self.ports["CHANGING"])
        before = ssl.get_server_certificate(listener)
        for pending in self.admin.incremental_alter_configs([resource]).values():
            pending.result(30)
        eventually(lambda: ssl.get_server_certificate(listener) != before, "the broker shows the other certificate", 30)

    def stop(self) -> None:
        """Stop what stands beside the broker."""
        self.relay.stop()
        self.provider.stop()

    def _identities(self) -> dict[str, str]:
        ended = datetime.now(UTC) - timedelta(days=1)
        issued = {
            "EXPIRED": self.authority.issue("broker", ends=ended),
            "ELSEWHERE": self.authority.issue("broker", ["kafka.example.com"]),
        }
        usual = self.authority.issue("broker")
        found = {f"listener.name.{name}.ssl.client.auth": "required" for name in ("mutual", "changing")}
        for name in (one for one, protocol in LISTENERS.items() if protocol.endswith("SSL")):
            file = self.directory / f"{name.lower()}.pem"
            issued.get(name, usual).write(file)
            found |= {
                f"listener.name.{name.lower()}.ssl.{entry}": value
                for entry, value in {
                    "keystore.type": "PEM",
                    "keystore.location": str(file),
                    "truststore.type": "PEM",
                    "truststore.location": str(self.ca),
                }.items()
            }
        return found

    def _logins(self) -> dict[str, str]:
        found = {
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }
        for name in (one for one, protocol in LISTENERS.items() if protocol.startswith("SASL")):
            at = f"listener.name.{name.lower()}"
            for mechanism, module in _LOGINS.items():
                known = f' user_{USER}="{_octal(PASSWORD)}"' if mechanism == "PLAIN" else ""
                found[f"{at}.{mechanism.lower()}.sasl.jaas.config"] = f"{module} required{known};"
            found[f"{at}.oauthbearer.sasl.server.callback.handler.class"] = (
                f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            )
        return found

    def _entries(self, listener: str, mechanism: str, *, java: bool) -> dict[str, str]:
        protocol = LISTENERS.get(listener, "PLAINTEXT")
        found = {"bootstrap.servers": self.address(listener), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            found |= (
                {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
                if java
                else {"ssl.ca.location": str(self.ca)}
            )
        if listener in ("MUTUAL", "CHANGING"):
            found |= self._shown(java=java)
        if mechanism:
            found["sasl.mechanism" if java else "sasl.mechanisms"] = mechanism
            found |= self._known(mechanism, encrypted=protocol == "SASL_SSL", java=java)
        return found

    def _shown(self, *, java: bool) -> dict[str, str]:
        number = next(self._files)
        both, certificate, key = (self.directory / f"{name}-{number}.pem" for name in ("client", "certificate", "key"))
        issued = self.authority.issue(USER)
        issued.write(both)
        issued.write(certificate, key)
        if java:
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
        return {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}

    def _known(self, mechanism: str, *, encrypted: bool, java: bool) -> dict[str, str]:
        """The credentials, in the names of either client."""
        if mechanism != "OAUTHBEARER":
            login = f'username="{USER}" password="{_escaped(PASSWORD)}"'
            return (
                {"sasl.jaas.config": f"{_LOGINS[mechanism]} required {login};"}
                if java
                else {"sasl.username": USER, "sasl.password": PASSWORD}
            )
        url = self.provider.encrypted_token_url if encrypted else self.provider.token_url
        found = {"sasl.oauthbearer.token.endpoint.url": url}
        if java:
            login = f'clientId="{USER}" clientSecret="{_escaped(PASSWORD)}" scope="kafka"'
            login += f' ssl.truststore.type="PEM" ssl.truststore.location="{self.ca}"' if encrypted else ""
            return found | {
                "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f"{_LOGINS[mechanism]} required {login};",
            }
        found |= {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": USER}
        found |= {"sasl.oauthbearer.client.secret": PASSWORD, "sasl.oauthbearer.scope": "kafka"}
        return found | ({"https.ca.location": str(self.ca)} if encrypted else {})


def write_properties(file: Path, entries: Mapping[str, str]) -> None:
    """Write a properties file as a user does: only backslashes are doubled."""
    write_secret(file, "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in entries.items()))


def _octal(text: str) -> str:
    """A text in quotes for the broker, which reads its file as Latin-1."""
    return "".join(one if one.isascii() else f"\\{ord(one):03o}" for one in _escaped(text))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
