"""Certificates and keys, from PEM files and from Java's PKCS12 stores, as PEM text that both clients take.

Every function raises ValueError, whose text holds no secret, if a file or text is not what it must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

_JKS = b"\xfe\xed\xfe\xed"
_PEM = b"-----BEGIN "


@dataclass(frozen=True)
class Identity:
    """What a client shows of itself: its certificate with those that signed it, and its key, unencrypted, as PKCS8."""

    chain: str
    key: str = field(repr=False)
    name: str
    expires: datetime


def authorities(data: bytes, password: str | None) -> str:
    """The certificates to trust, of a PEM text or a PKCS12 store, as PEM."""
    if _PEM in data:
        return _pem(_certificates(data))
    _require_no_jks(data)
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError:
        raise ValueError("expected PEM certificates, or a PKCS12 store and its password, got neither") from None
    found = [one.certificate for one in store.additional_certs]
    if not found and store.cert is not None:
        found = [store.cert.certificate]
    if not found:
        raise ValueError("expected certificates to trust in the store, got none")
    return _pem(found)


def identity_of_store(data: bytes, password: str | None) -> Identity:
    """The identity in a PKCS12 store."""
    _require_no_jks(data)
    try:
        key, certificate, others = pkcs12.load_key_and_certificates(
            data, password.encode() if password is not None else None
        )
    except ValueError:
        raise ValueError("expected a PEM file, or a PKCS12 store and its password, got neither") from None
    if key is None or certificate is None:
        raise ValueError("expected a key with its certificate in the store, got none")
    return _identity(key, [certificate, *others])


def identity(chain: bytes, key: bytes, password: str | None) -> Identity:
    """The identity of a certificate and a key as PEM, which may be one text."""
    certificates = _certificates(chain)
    if b"PRIVATE KEY-----" not in key:
        raise ValueError("expected a private key as PEM, got none")
    start = key.index(_PEM, max(0, key.index(b"PRIVATE KEY-----") - 40))
    locked = b"ENCRYPTED" in key[start:]
    if locked and password is None:
        raise ValueError("expected the password of the key, which is encrypted, got none: set ssl.key.password")
    try:
        found = load_pem_private_key(key[start:], password.encode() if locked and password is not None else None)
    except (ValueError, TypeError):
        what = "another password, or a damaged key" if locked else "a damaged key"
        raise ValueError(f"expected a private key as PEM, got {what}") from None
    return _identity(found, certificates)


def _identity(key: object, certificates: Sequence[x509.Certificate]) -> Identity:
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey):
        raise ValueError("expected a key of the kind RSA, EC or EdDSA, got another kind")
    public = _spelled(key.public_key())
    own = [one for one in certificates if _spelled(one.public_key()) == public]
    if not own:
        raise ValueError("expected the key of the certificate, got that of another one")
    leaf = own[0]
    name = leaf.subject.rfc4514_string()
    _require_current(leaf, f"the certificate of {name}")
    chain = _pem([leaf, *(one for one in certificates if one is not leaf)])
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Identity(chain, text, name, leaf.not_valid_after_utc)


def _spelled(key: CertificatePublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _certificates(data: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise ValueError("expected certificates as PEM, got none that can be read") from None
    return found


def _require_current(certificate: x509.Certificate, what: str) -> None:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        raise ValueError(
            f"expected a certificate that is valid, but {what} expired on "
            f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: renew it"
        )
    if now < certificate.not_valid_before_utc:
        raise ValueError(
            f"expected a certificate that is valid, but {what} begins on "
            f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: see whether the clock is right"
        )


def _require_no_jks(data: bytes) -> None:
    if data.startswith(_JKS):
        raise ValueError(
            "expected PEM or PKCS12, got a store of the type JKS: convert it with keytool -importkeystore "
            "-srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"
        )


def _pem(certificates: Sequence[x509.Certificate]) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)
