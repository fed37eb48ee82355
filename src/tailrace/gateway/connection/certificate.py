"""The gateway's certificate and key: read from files, taken anew when the files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from tailrace.errors import SettingError

log = logging.getLogger(__name__)

_CERT, _KEY = "--tls-cert", "--tls-key"
# Seconds between two looks at the files.
_LOOK = 1.0
Files = tuple[bytes, bytes]


@dataclass(frozen=True)
class Valid:
    """A certificate that clients can be shown: the context of new connections, and when it begins and ends."""

    context: ssl.SSLContext
    begins: datetime
    ends: datetime


class ServerCertificate:
    """The certificate that new connections are shown. Connections that are open keep theirs.

    `problem` says why what the files hold now can't be used; until they hold something better, the last one that
    could be used is shown.
    """

    def __init__(self, certificate: str, key: str) -> None:
        """Raises SettingError if the files can't be used."""
        self._paths = Path(certificate), Path(key)
        self._seen: Files | None = self._read()
        self._valid = usable(*self._paths, self._seen, datetime.now(UTC))
        self.problem: str | None = None
        self._say("certificate=used")

    @property
    def context(self) -> ssl.SSLContext:
        return self._valid.context

    @property
    def ends(self) -> datetime:
        return self._valid.ends

    @property
    def problems(self) -> list[str]:
        """Why clients are shown an old certificate, or one that they refuse."""
        return [problem for problem in (self.problem, _outside(self._valid, datetime.now(UTC))) if problem is not None]

    async def run(self) -> None:
        """Follow the files, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Use what the files hold now, if it has changed and can be used."""
        try:
            found = self._read()
            if found == self._seen:
                return
            valid = usable(*self._paths, found, datetime.now(UTC))
        except SettingError as error:
            # The two files are replaced one after the other: the next look may find a pair.
            self._seen = None
            if self.problem != str(error):
                self.problem = str(error)
                log.warning("certificate=kept problem=%r", self.problem)
            return
        self._seen, self._valid, self.problem = found, valid, None
        self._say("certificate=replaced")

    def _say(self, what: str) -> None:
        log.info("%s file=%s ends=%s", what, self._paths[0], self.ends.isoformat())

    def _read(self) -> Files:
        certificate, key = self._paths
        return _content(_CERT, certificate), _content(_KEY, key)


def read_certificate(certificate: str, key: str) -> ServerCertificate | None:
    """The certificate that two settings name; None if they name none. Raises SettingError."""
    if not certificate and not key:
        return None
    if not key:
        raise SettingError(f"{_KEY}: expected the file of the key with {_CERT}, got none")
    if not certificate:
        raise SettingError(f"{_CERT}: expected the file of the certificate with {_KEY}, got none")
    return ServerCertificate(certificate, key)


def usable(certificate: Path, key: Path, content: Files, now: datetime) -> Valid:
    """What the two files hold. Raises SettingError if no client could be shown it."""
    shown = _certificate(certificate, content[0])
    public = _public(key, content[1])
    if _bits(shown.public_key()) != _bits(public):
        raise SettingError(
            f"{_KEY}: expected the key of the first certificate in {str(certificate)!r}, got another one in "
            f"{str(key)!r}; the server's certificate comes first, those that signed it after it"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_none)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
        raise SettingError(f"{_CERT}: expected a certificate that OpenSSL takes, got {reason}") from None
    if (_content(_CERT, certificate), _content(_KEY, key)) != content:
        raise SettingError(f"{_CERT}: expected files at rest, got some that changed while they were read; try again")
    valid = Valid(context, shown.not_valid_before_utc, shown.not_valid_after_utc)
    if (problem := _outside(valid, now)) is not None:
        raise SettingError(problem)
    return valid


def _outside(valid: Valid, now: datetime) -> str | None:
    if valid.begins <= now < valid.ends:
        return None
    when = f"that ended on {valid.ends.isoformat()}" if now >= valid.ends else f"from {valid.begins.isoformat()} on"
    return f"{_CERT}: expected a certificate that is valid now, got one {when}; put a new one in its place"


def _certificate(path: Path, content: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise SettingError(
            f"{_CERT}: expected a certificate as PEM (-----BEGIN CERTIFICATE-----), got something else in {str(path)!r}"
        ) from None


def _public(path: Path, content: bytes) -> object:
    try:
        return load_pem_private_key(content, None).public_key()
    except TypeError:
        raise SettingError(
            f"{_KEY}: expected a key without a password, got an encrypted one in {str(path)!r}; "
            "decrypt it with: openssl pkey -in FILE -out NEW"
        ) from None
    except Exception:
        # Never the library's own words: they could quote the key.
        raise SettingError(
            f"{_KEY}: expected a private key as PEM (-----BEGIN PRIVATE KEY-----), got something else in {str(path)!r}"
        ) from None


def _bits(key: object) -> bytes:
    write: Callable[..., bytes] = key.public_bytes  # type: ignore[attr-defined]
    return write(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _content(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(f"{flag}: expected a file that can be read, got {str(path)!r}: {error.strerror}") from None


def _none() -> str:
    # OpenSSL would ask the terminal.
    raise ValueError("an encrypted key")
