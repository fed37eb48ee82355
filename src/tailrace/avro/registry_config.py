"""How to connect to the schema registry: `--registry`, or the file of `--registry-config`, and the secrets beside.

The file has the names of Confluent's clients: those of Java (`schema.registry.url`) or those of Python (`url`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tailrace.credentials.client_tls import ClientTls, read_tls
from tailrace.credentials.given import GivenEntries
from tailrace.errors import RegistryError, SettingError
from tailrace.properties import Entry, read_properties
from tailrace.settings import Settings

_PREFIX = "schema.registry."
_PASSWORD, _TOKEN = "TAILRACE_REGISTRY_PASSWORD", "TAILRACE_REGISTRY_TOKEN"
_KEY_PASSWORD = "TAILRACE_REGISTRY_KEY_PASSWORD"  # noqa: S105 the name of a variable

_TLS = (
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
)
_OTHERS = (
    "url",
    "basic.auth.credentials.source",
    "basic.auth.user.info",
    "bearer.auth.credentials.source",
    "bearer.auth.token",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
)
# Sources of credentials that Confluent's clients know, and that we do not have.
_SOURCES = frozenset({"SASL_INHERIT", "OAUTHBEARER", "SASL_OAUTHBEARER_INHERIT", "CUSTOM"})
_NONE: Mapping[str, str] = {}
# Java's clients take each with and without the prefix, apart from the URL.
_ALIASES = {_PREFIX + name: name for name in (*_OTHERS, *_TLS)}


@dataclass(frozen=True)
class RegistrySecrets:
    """Secrets that come from elsewhere than the file: a user's password, a token, and the password of the key."""

    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RegistryConfig:
    """Where the registry is, and how this process proves who it is. `address` holds no user and no password.

    `who` names the user or the token for errors, and `told_in` what to correct; `files` are all that it was read from.
    """

    address: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    who: str = ""
    told_in: str = "--registry"
    tls: ClientTls = field(default_factory=ClientTls)
    files: tuple[Path, ...] = ()

    @classmethod
    def of_url(cls, url: str, secrets: RegistrySecrets | None = None) -> RegistryConfig:
        """By a URL alone, such as `http://user:password@localhost:8081`. Raises RegistryError or SettingError."""
        secrets = secrets or RegistrySecrets()
        address, user, password = _split(url)
        if secrets.key is not None:
            raise SettingError(
                f"{_KEY_PASSWORD}: expected --registry-config (TAILRACE_REGISTRY_CONFIG) with it, which names the key, "
                "got none"
            )
        if user is not None and secrets.token is not None:
            raise SettingError(f"{_TOKEN}: expected a user or a token, got a user in --registry, too: remove one")
        if secrets.token is not None:
            return cls(address, _bearer(secrets.token), "a token", _TOKEN)
        if user is None and secrets.password is not None:
            raise SettingError(f"{_PASSWORD}: expected a user in --registry, such as https://user@host, got none")
        if user is None:
            return cls(address)
        if password and secrets.password is not None:
            raise SettingError(
                f"{_PASSWORD}: expected the password in one place, got one in --registry, too: remove one of the two"
            )
        told_in = "--registry" if secrets.password is None else _PASSWORD
        return cls(address, _basic(user, password or secrets.password or ""), f"user {user!r}", told_in)

    @classmethod
    def of(cls, settings: Settings) -> RegistryConfig | None:
        """As a process's settings say; None if they name no registry. Raises SettingError or RegistryError."""
        password, of_password = settings.secret("registry-password")
        token, of_token = settings.secret("registry-token")
        key, of_key = settings.secret("registry-key-password")
        secrets, files = RegistrySecrets(password, token, key), (*of_password, *of_token, *of_key)
        url, path = settings.text("registry"), settings.text("registry-config")
        if password is not None and token is not None:
            raise SettingError(f"{_TOKEN}: expected a password or a token, got {_PASSWORD}, too: remove one of the two")
        if path:
            return cls.read(path, secrets, files, url)
        if url:
            found = cls.of_url(url, secrets)
            return cls(found.address, found.headers, found.who, found.told_in, found.tls, files)
        if password is not None or token is not None or key is not None:
            raise SettingError(
                "TAILRACE_REGISTRY_…: expected --registry or --registry-config with it, which says where the registry "
                "is, got neither"
            )
        return None

    @classmethod
    def read(
        cls, path: str, secrets: RegistrySecrets, files: tuple[Path, ...] = (), elsewhere: str = ""
    ) -> RegistryConfig:
        """Read a file. Raises SettingError, with file and line, for what can't be used.

        files: those that the secrets come from. elsewhere: the URL of `--registry`, for a file that names none.
        """
        given = GivenEntries(path, read_properties(path), _ALIASES)
        url = given.take("url")
        address, user, password = _of_url(given, url, elsewhere)
        if (useless := given.any_of("ssl.")) is not None and not address.startswith("https:"):
            raise given.wrong(useless, f"expected an https URL with it, got {address}: set that, or remove it")
        tls = read_tls(given, secrets.key)
        bearer = given.any_of("bearer.auth.")
        basic = given.any_of("basic.auth.")
        if basic is not None and bearer is not None:
            raise given.wrong(
                bearer, f"expected a user or a token, got {basic.name} in line {basic.line}, too: remove one of the two"
            )
        if bearer is not None and user is not None:
            raise given.wrong(bearer, "expected a user or a token, got a user in the URL, too: remove one of the two")
        headers, who, told_in = _NONE, "", path
        if bearer is not None or secrets.token is not None:
            if basic is not None or user is not None:
                raise SettingError(f"{_TOKEN}: expected a user or a token, got a user in {path}, too: remove one")
            headers, told_in = _token(given, secrets)
            who = "a token"
        elif basic is not None or user is not None or secrets.password is not None:
            user, password, told_in = _login(given, url, user, password, secrets)
            headers, who = _basic(user, password), f"user {user!r}"
        if given.left:
            raise given.unknown(given.left[0], {*_OTHERS, *_TLS, *_ALIASES} - {"url"}, "docs/sources.md")
        return cls(address, headers, who, told_in, tls, (Path(path), *files, *given.files))


def _split(url: str) -> tuple[str, str | None, str]:
    """Address, user and password of a URL. Raises RegistryError, whose text does not hold the URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or "," in (parts.hostname or ""):
        # The text may hold a password anywhere.
        raise RegistryError(
            "--registry: expected a URL such as http://localhost:8081 or https://user:password@host/path, got "
            "another text; percent-encode special characters in the user and the password"
        )
    login, at, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}", unquote(user) if at else None, unquote(password)


def _of_url(given: GivenEntries, entry: Entry | None, elsewhere: str) -> tuple[str, str | None, str]:
    if entry is None:
        if not elsewhere:
            raise given.wrong(None, "expected schema.registry.url with the address of the registry, got none")
        return _split(elsewhere)
    if elsewhere and elsewhere.rstrip("/") != entry.value.strip().rstrip("/"):
        raise given.wrong(
            entry, "expected the same as --registry (TAILRACE_REGISTRY), got another value: remove one of the two"
        )
    try:
        return _split(entry.value.strip())
    except RegistryError:
        raise given.wrong(
            entry, "expected one URL such as https://registry.example.com:8081, got another text"
        ) from None


def _token(given: GivenEntries, secrets: RegistrySecrets) -> tuple[Mapping[str, str], str]:
    source, token = given.take("bearer.auth.credentials.source"), given.take("bearer.auth.token")
    cluster, pool = given.text("bearer.auth.logical.cluster"), given.text("bearer.auth.identity.pool.id")
    if source is not None and source.value.strip() != "STATIC_TOKEN":
        raise given.wrong(source, f"expected STATIC_TOKEN, got {_shown(source)}: no other is supported")
    text = token.value.strip() if token is not None else ""
    if text and secrets.token is not None and text != secrets.token:
        raise SettingError(
            f"{_TOKEN}: expected the token in one place, got another one in {given.file} (bearer.auth.token): remove "
            "one of them"
        )
    found = secrets.token or text
    if not found:
        raise given.wrong(token or source, f"expected a token, got none: set {_TOKEN}, {_TOKEN}_FILE, or it here")
    if not found.isascii() or not found.isprintable() or " " in found:
        raise SettingError(f"{given.file}: bearer.auth.token: expected a token of ASCII characters, got others")
    headers = dict(_bearer(found))
    if cluster is not None:
        headers["target-sr-cluster"] = cluster
    if pool is not None:
        headers["Confluent-Identity-Pool-Id"] = pool
    return headers, _TOKEN if secrets.token is not None else _at(given, token)


def _login(
    given: GivenEntries, url: Entry | None, user: str | None, password: str, secrets: RegistrySecrets
) -> tuple[str, str, str]:
    """User, password, and where the password is."""
    source, info = given.take("basic.auth.credentials.source"), given.take("basic.auth.user.info")
    kind = source.value.strip().upper() if source is not None else ""
    if kind not in ("", "URL", "USER_INFO"):
        raise given.wrong(source, f"expected USER_INFO or URL, got {_shown(source)}: no other is supported")
    entry = info or source
    if info is not None and (user is not None or kind == "URL"):
        raise given.wrong(info, "expected the user in one place, got the source URL, or a user in the URL, too")
    if kind == "URL" and user is None:
        raise given.wrong(source, "expected a user in the URL, such as https://user@host, got none")
    if kind == "USER_INFO" and info is None:
        raise given.wrong(source, "expected basic.auth.user.info=user:password with it, got none")
    if info is not None:
        user, _, password = info.value.strip().partition(":")
        if not user:
            raise given.wrong(info, "expected user:password, or a user alone, got another text")
    if user is None:
        raise given.wrong(entry, f"expected a user, as basic.auth.user.info or in the URL, with {_PASSWORD}, got none")
    if password and secrets.password is not None and password != secrets.password:
        raise SettingError(
            f"{_PASSWORD}: expected the password in one place, got another one in {given.file}: remove one of them"
        )
    found = secrets.password or password
    if not found:
        raise given.wrong(entry or url, f"expected a password, got none: set {_PASSWORD}, {_PASSWORD}_FILE, or it here")
    return user, found, _PASSWORD if secrets.password is not None else _at(given, info or url)


def _shown(source: Entry | None) -> str:
    """A source of credentials as an error may show it: instead of its name, a file may hold the credentials here."""
    name = source.value.strip().upper() if source is not None else ""
    return repr(name) if name in _SOURCES else "another text"


def _at(given: GivenEntries, entry: Entry | None) -> str:
    return f"{given.file}:{entry.line}" if entry is not None else "--registry"


def _basic(user: str, password: str) -> Mapping[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}
