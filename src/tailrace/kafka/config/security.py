"""Protocol, certificates and credentials: read in the names of either client, and told to both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tailrace.credentials import stores
from tailrace.credentials.client_tls import MACHINE, read_tls
from tailrace.credentials.given import GivenEntries
from tailrace.credentials.stores import Identity
from tailrace.errors import SettingError
from tailrace.kafka.config import jaas
from tailrace.kafka.config.jaas import Jaas
from tailrace.logs import is_path
from tailrace.properties import Entry

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (PLAIN, *SCRAMS, OAUTHBEARER)

_JAVA_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_JAVA_LOGINS = (_JAVA_LOGIN, _JAVA_LOGIN.replace("oauthbearer.", "oauthbearer.secured."))
_PASSWORD = "TAILRACE_KAFKA_SASL_PASSWORD"  # noqa: S105 the name of a variable


@dataclass(frozen=True)
class Secrets:
    """Secrets that come from elsewhere than the file: of SASL, and of the client's key."""

    sasl: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Oauth:
    """How a client gets tokens from an identity provider: client credentials, by OpenID Connect."""

    endpoint: str
    client: str
    secret: str = field(repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    authorities: str = field(default="", repr=False)


@dataclass(frozen=True)
class Security:
    """How a process proves who it is, and whom it believes.

    `authorities` are the certificates to trust, as PEM; those of the machine if it is empty. `trusted_in` and
    `shown_in` name the files for errors.
    """

    protocol: str = PLAINTEXT
    authorities: str = field(default="", repr=False)
    trusted_in: str = MACHINE
    identity: Identity | None = None
    shown_in: str = ""
    checks_host: bool = True
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    oauth: Oauth | None = None

    @property
    def encrypted(self) -> bool:
        """Whether connections are TLS."""
        return self.protocol in (SSL, SASL_SSL)

    def librdkafka(self) -> dict[str, str]:
        """The settings of librdkafka."""
        found = {"security.protocol": self.protocol}
        if self.encrypted:
            if self.authorities:
                found["ssl.ca.pem"] = self.authorities
            if self.identity is not None:
                found |= {"ssl.certificate.pem": self.identity.chain, "ssl.key.pem": self.identity.key}
            found["ssl.endpoint.identification.algorithm"] = "https" if self.checks_host else "none"
        if self.mechanism:
            found["sasl.mechanism"] = self.mechanism
        if self.oauth is not None:
            found |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.oauth.endpoint,
                "sasl.oauthbearer.client.id": self.oauth.client,
                "sasl.oauthbearer.client.secret": self.oauth.secret,
            }
            if self.oauth.scope:
                found["sasl.oauthbearer.scope"] = self.oauth.scope
            if self.oauth.extensions:
                found["sasl.oauthbearer.extensions"] = ",".join(f"{k}={v}" for k, v in self.oauth.extensions.items())
            if self.oauth.authorities:
                found["https.ca.pem"] = self.oauth.authorities
        elif self.mechanism:
            found |= {"sasl.username": self.user, "sasl.password": self.password}
        return found

    def java(self) -> tuple[dict[str, str], dict[str, str]]:
        """The settings of Java's clients: those that anyone may see, and those that hold secrets or are long."""
        open_, kept = {"security.protocol": self.protocol}, dict[str, str]()
        if self.encrypted:
            if self.authorities:
                open_["ssl.truststore.type"] = "PEM"
                kept["ssl.truststore.certificates"] = self.authorities
            if self.identity is not None:
                open_["ssl.keystore.type"] = "PEM"
                kept |= {
                    "ssl.keystore.certificate.chain": self.identity.chain,
                    "ssl.keystore.key": self.identity.key,
                }
            open_["ssl.endpoint.identification.algorithm"] = "https" if self.checks_host else ""
        if self.mechanism:
            open_["sasl.mechanism"] = self.mechanism
            kept["sasl.jaas.config"] = jaas.write_jaas(self._jaas())
        if self.oauth is not None:
            open_["sasl.oauthbearer.token.endpoint.url"] = self.oauth.endpoint
            open_["sasl.login.callback.handler.class"] = _JAVA_LOGIN
        return open_, kept

    def _jaas(self) -> Jaas:
        if (oauth := self.oauth) is None:
            module = jaas.PLAIN if self.mechanism == PLAIN else jaas.SCRAM
            return Jaas(module, {"username": self.user, "password": self.password})
        options = {"clientId": oauth.client, "clientSecret": oauth.secret}
        if oauth.scope:
            options["scope"] = oauth.scope
        options |= {f"extension_{name}": value for name, value in oauth.extensions.items()}
        if oauth.authorities:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": oauth.authorities}
        return Jaas(jaas.OAUTHBEARER, options)


def read_security(given: GivenEntries, secrets: Secrets) -> Security:
    """Take the entries about security. Raises SettingError, with file and line, for what can't be used."""
    entry = given.take("security.protocol")
    protocol = entry.value.strip().upper() if entry is not None else PLAINTEXT
    if protocol not in PROTOCOLS:
        raise given.wrong(entry, f"expected {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}, got {protocol!r}")
    for prefix, protocols in (("sasl.", (SASL_PLAINTEXT, SASL_SSL)), ("ssl.", (SSL, SASL_SSL))):
        useless = given.any_of(prefix)
        if useless is not None and protocol not in protocols:
            raise given.wrong(
                useless,
                f"expected security.protocol={' or '.join(protocols)} with it, got {protocol}: set that, or remove it",
            )
    found = Security(protocol)
    if protocol in (SSL, SASL_SSL):
        found = _with_tls(given, secrets, protocol)
    if protocol in (SASL_PLAINTEXT, SASL_SSL):
        found = _with_sasl(given, secrets, found)
    return found


def _with_tls(given: GivenEntries, secrets: Secrets, protocol: str) -> Security:
    tls = read_tls(given, secrets.key)
    return Security(protocol, tls.authorities, tls.trusted_in, tls.identity, tls.shown_in, tls.checks_host)


def _with_sasl(given: GivenEntries, secrets: Secrets, tls: Security) -> Security:
    kerberos = given.any_of("sasl.kerberos.")
    entry = given.take("sasl.mechanism")
    mechanism = entry.value.strip().upper() if entry is not None else ""
    if kerberos is not None or mechanism not in MECHANISMS:
        what = (
            "Kerberos" if kerberos is not None else repr(mechanism) if entry is not None else "none: set sasl.mechanism"
        )
        raise given.wrong(
            kerberos or entry, f"expected the mechanism {', '.join(MECHANISMS[:-1])} or {OAUTHBEARER}, got {what}"
        )
    line, login = given.take("sasl.jaas.config"), None
    if line is not None:
        try:
            login = jaas.read_jaas(line.value)
        except ValueError as error:
            raise given.wrong(line, str(error)) from None
        expected = {PLAIN: jaas.PLAIN, OAUTHBEARER: jaas.OAUTHBEARER}.get(mechanism, jaas.SCRAM)
        if login.module != expected:
            raise given.wrong(line, f"expected {expected} for the mechanism {mechanism}, got {login.module}")
    options = dict(login.options) if login is not None else {}
    if mechanism == OAUTHBEARER:
        return replace(tls, mechanism=mechanism, oauth=_oauth(given, secrets, entry, line, options))
    user = _one_of(given, "sasl.username", line, options.pop("username", None))
    password = _one_of(given, "sasl.password", line, options.pop("password", None))
    if options and line is not None:
        raise given.wrong(line, "expected username and password alone, got another option, too: quote values")
    password = _secret(given, "sasl.password", password, secrets.sasl)
    if not user:
        raise given.wrong(entry, "expected a user, got none: set sasl.username, or username=… in sasl.jaas.config")
    if not password:
        raise given.wrong(entry, f"expected a password, got none: set {_PASSWORD}, {_PASSWORD}_FILE, or sasl.password")
    return replace(tls, mechanism=mechanism, user=user, password=password)


def _oauth(
    given: GivenEntries, secrets: Secrets, mechanism: Entry | None, line: Entry | None, options: dict[str, str]
) -> Oauth:
    for name in ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"):
        handler = given.take(name)
        if handler is not None and handler.value.strip() not in _JAVA_LOGINS:
            raise given.wrong(handler, f"expected {_JAVA_LOGIN}, which has a twin in librdkafka, got another class")
    method = given.take("sasl.oauthbearer.method")
    if method is not None and method.value.strip().lower() != "oidc":
        raise given.wrong(method, f"expected oidc, got {method.value.strip()!r}")
    endpoint = given.take("sasl.oauthbearer.token.endpoint.url")
    if endpoint is None or not endpoint.value.strip().startswith(("http://", "https://")):
        raise given.wrong(
            endpoint or mechanism,
            "expected the URL at which the identity provider gives tokens, got none: set "
            "sasl.oauthbearer.token.endpoint.url",
        )
    if "@" in endpoint.value.partition("://")[2].partition("/")[0]:
        raise given.wrong(
            endpoint,
            "expected a URL without a user and password, because Spark's plans show it: set sasl.oauthbearer.client.id "
            f"and {_PASSWORD}",
        )
    client = _one_of(given, "sasl.oauthbearer.client.id", line, options.pop("clientId", None))
    secret = _one_of(given, "sasl.oauthbearer.client.secret", line, options.pop("clientSecret", None))
    scope = _one_of(given, "sasl.oauthbearer.scope", line, options.pop("scope", None)) or ""
    extensions = {name.removeprefix("extension_"): options.pop(name) for name in list(options) if "extension_" in name}
    listed = given.take("sasl.oauthbearer.extensions")
    if listed is not None:
        pairs = [one.partition("=") for one in listed.value.split(",") if one.strip()]
        if not all(name.strip() and equals for name, equals, _ in pairs):
            raise given.wrong(listed, "expected name=value pairs with commas between them")
        extensions |= {name.strip(): value.strip() for name, _, value in pairs}
    authorities = _endpoint_authorities(given, line, options)
    if options and line is not None:
        raise given.wrong(
            line,
            "expected clientId, clientSecret, scope, extension_… and ssl.truststore.…, got another option, too: quote "
            "values",
        )
    secret = _secret(given, "sasl.oauthbearer.client.secret", secret, secrets.sasl)
    if not client:
        raise given.wrong(mechanism, "expected a client id, got none: set sasl.oauthbearer.client.id")
    if not secret:
        raise given.wrong(
            mechanism,
            f"expected a client secret, got none: set {_PASSWORD}, {_PASSWORD}_FILE, or sasl.oauthbearer.client.secret",
        )
    return Oauth(endpoint.value.strip(), client, secret, scope, extensions, authorities)


def _endpoint_authorities(given: GivenEntries, line: Entry | None, options: dict[str, str]) -> str:
    """Whom to trust at the identity provider's address."""
    options.pop("ssl.truststore.type", None)
    password = options.pop("ssl.truststore.password", None)
    text, path = options.pop("ssl.truststore.certificates", None), options.pop("ssl.truststore.location", None)
    file, pem = given.take("https.ca.location"), given.take("https.ca.pem")
    entry = file or pem or line
    try:
        if file is not None:
            path = file.value.strip()
        if path is not None:
            return stores.authorities(given.read(path), password)
        if pem is not None:
            text = pem.value
        return stores.authorities(text.encode(), password) if text is not None else ""
    except ValueError as error:
        raise given.wrong(entry, f"{path}: {error}" if path is not None and is_path(path) else str(error)) from None


def _one_of(given: GivenEntries, name: str, line: Entry | None, in_line: str | None) -> str | None:
    """What an entry says, or the line of Java's login; both must say the same."""
    entry = given.take(name)
    value = entry.value if entry is not None else None
    if entry is not None and in_line is not None and value != in_line and line is not None:
        raise given.contradiction(line, entry)
    return value if value is not None else in_line


def _secret(given: GivenEntries, name: str, in_file: str | None, elsewhere: str | None) -> str | None:
    if in_file and elsewhere and in_file != elsewhere:
        raise SettingError(
            f"{_PASSWORD}: expected a secret in one place, got another one in {given.file} ({name}): remove one of them"
        )
    return elsewhere or in_file
