"""Requests to the schema registry: with TLS, a password or a token, as the configuration says at that moment.

If a file of the configuration has changed, the next request uses what it says then. A request that fails because of
TLS, or because the registry does not let this process in, is one line that names the file or setting to correct.
"""

from __future__ import annotations

import http.client
import json
import logging
import secrets
import ssl
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tailrace.avro.registry_config import RegistryConfig
from tailrace.credentials.client_tls import ClientTls
from tailrace.credentials.fingerprints import fingerprints
from tailrace.credentials.stores import Identity
from tailrace.errors import RegistryError, SettingError, Unreachable

log = logging.getLogger(__name__)

TIMEOUT = 10.0
_LONGEST = 16 * 1024 * 1024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
# The API's own codes for a subject, a version and a schema that it lacks. Any other 404 does not come from a
# registry: a wrong path must not make good records malformed.
_ABSENT = frozenset({40401, 40402, 40403})
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
# OpenSSL's codes of a certificate that does not hold.
_EXPIRED, _NOT_YET = 10, 9
_OTHER_HOST = frozenset({62, 64})
_KEYSTORE = "ssl.keystore.location in --registry-config"


@dataclass(frozen=True)
class _Open:
    """A configuration in use, and what its files were like when it was read."""

    config: RegistryConfig
    opener: urllib.request.OpenerDirector
    seen: list[tuple[int, int, int] | None]


class RegistryLink:
    """Asks a registry. Several threads may use it. Raises what `read` raises if the configuration can't be used."""

    def __init__(self, read: Callable[[], RegistryConfig], timeout: float = TIMEOUT) -> None:
        self._read = read
        self._timeout = timeout
        self._lock = threading.Lock()
        self._unread: str | None = None
        self._open = _opened(read())

    @property
    def address(self) -> str:
        """Its URL, without user and password."""
        return self._open.config.address

    def ask(self, path: str) -> Any:
        """The answer to a request; None if the registry says that it has no such thing.

        Raises Unreachable if no answer comes in time, or if one side refuses the other; and RegistryError.
        """
        using = self._current()
        config = using.config
        request = urllib.request.Request(f"{config.address}/{path}", headers={"Accept": _ACCEPT})
        for name, value in config.headers.items():
            # If the registry redirects, the new address does not get the password.
            request.add_unredirected_header(name, value)
        try:
            with cast(http.client.HTTPResponse, using.opener.open(request, timeout=self._timeout)) as response:
                body = response.read(_LONGEST)
        except urllib.error.HTTPError as error:
            with error:
                return _refused(error, config)
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Unreachable(_silent(reason, config)) from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise strange(config.address, "an answer that is not JSON") from None

    def _current(self) -> _Open:
        """The configuration as its files say now; what they said before, if they can't be used."""
        with self._lock:
            found = fingerprints(self._open.config.files)
            if found != self._open.seen:
                try:
                    self._open = _opened(self._read(), found)
                except (SettingError, RegistryError) as error:
                    if self._unread != str(error):
                        log.error("schema registry: the changed configuration is not used: %s", error)
                    self._unread = str(error)
                else:
                    self._unread = None
                    log.info("schema registry: credentials and certificates were read anew")
            return self._open


def strange(address: str, got: str) -> RegistryError:
    """The error if something else than a registry answers."""
    return RegistryError(
        f"expected a schema registry with the Confluent API at {address}, got {got}; correct --registry: some "
        "registries have that API below a path, such as /apis/ccompat/v7"
    )


def _opened(config: RegistryConfig, seen: list[tuple[int, int, int] | None] | None = None) -> _Open:
    # A file that changes while it is read is read once more.
    before = fingerprints(config.files) if seen is None else seen
    context = tls_context(config.tls) if config.address.startswith("https:") else None
    handlers = [urllib.request.HTTPSHandler(context=context)] if context is not None else []
    return _Open(config, urllib.request.build_opener(*handlers), before)


def tls_context(tls: ClientTls) -> ssl.SSLContext:
    """How the standard library does TLS as a configuration says: 1.2 at least."""
    # Without a text, the certificates of the machine are trusted.
    context = ssl.create_default_context(cadata=tls.authorities or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.checks_host
    if tls.identity is not None:
        _show(context, tls.identity)
    return context


def _show(context: ssl.SSLContext, identity: Identity) -> None:
    """Have a context show an identity. The standard library takes it from files alone."""
    # Encrypted with a password that is nowhere else: a file that is left by a process that was killed is no key.
    password = secrets.token_bytes(32).hex()
    key = load_pem_private_key(identity.key.encode(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )
    with tempfile.TemporaryDirectory(prefix="tailrace-") as directory:
        chain, locked = Path(directory) / "chain.pem", Path(directory) / "key.pem"
        chain.write_text(identity.chain)
        locked.write_bytes(key)
        context.load_cert_chain(chain, locked, password)


def _refused(error: urllib.error.HTTPError, config: RegistryConfig) -> None:
    if error.code in (401, 403):
        wanted = "credentials that may read schemas" if error.code == 401 else "a right to read schemas"
        remedy = f"correct {config.told_in}" if config.who else "give --registry https://user@host with a password"
        raise Unreachable(
            f"the schema registry at {config.address} answered {error.code}: expected {wanted}, got "
            f"{config.who or 'none'}; {remedy}, or see --registry-config"
        )
    if error.code in _PASSING:
        raise Unreachable(f"the schema registry at {config.address} answered {error.code}: look at its log")
    try:
        code = json.loads(error.read(_LONGEST)).get("error_code")
    except (ValueError, AttributeError, OSError, http.client.HTTPException, RecursionError):
        code = None
    if error.code != 404 or code not in _ABSENT:
        raise strange(config.address, f"{error.code}")


def _silent(reason: object, config: RegistryConfig) -> str:
    """Why there is no answer, and what to do."""
    address, tls = config.address, config.tls
    about = f"the schema registry at {address}"
    if isinstance(reason, ssl.SSLCertVerificationError):
        if reason.verify_code in _OTHER_HOST:
            host = urlsplit(address).hostname
            return (
                f"{about} shows a certificate for other hosts: expected one for {host}; correct --registry, or renew it"
            )
        if reason.verify_code in (_EXPIRED, _NOT_YET):
            when = "has expired" if reason.verify_code == _EXPIRED else "is not valid yet"
            return f"{about} shows a certificate that {when}: renew it, or see whether the clocks are right"
        return (
            f"{about} shows a certificate that is not trusted ({reason.verify_message}): expected one that "
            f"{tls.trusted_in} vouches for; set ssl.truststore.location in --registry-config"
        )
    if isinstance(reason, ssl.SSLError):
        return _not_let_in(reason, config)
    hint = ", or correct --registry"
    if address.startswith("https:") and isinstance(reason, ConnectionError):
        # A server that ends a connection may take back what it said of the reason.
        hint += f"; if it wants a certificate that it trusts, it got {_shown(tls)}: see {_KEYSTORE}"
    elif isinstance(reason, http.client.HTTPException | ConnectionResetError):
        hint += " (https?)"
    return f"no schema registry answers at {address} ({reason or type(reason).__name__}): start it{hint}"


def _shown(tls: ClientTls) -> str:
    return f"{tls.shown_in} ({tls.identity.name})" if tls.identity is not None else "none"


def _not_let_in(error: ssl.SSLError, config: RegistryConfig) -> str:
    """The text of an error that ended TLS, other than that of the registry's own certificate."""
    about, why = f"the schema registry at {config.address}", error.reason or type(error).__name__
    if why in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return f"{about} does not speak TLS: expected https there; correct --registry to http://…, or its port"
    if "ALERT" in why or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        wanted = f"expected a certificate that it trusts, got {_shown(config.tls)}"
        return f"{about} ended TLS ({why}): {wanted}; see {_KEYSTORE}"
    return f"{about}: TLS failed: {why}"
