"""Certificates for development and tests: an authority of this machine, and what it has signed.

- authority: signs certificates; whoever trusts its certificate trusts all of them
- issued: a certificate with its key, as PEM text
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tailrace.dev.ports import LOOPBACK

# The names and addresses under which services of this machine are reached.
LOCAL = ("localhost", LOOPBACK, "::1")
_YEAR = timedelta(days=365)
# Clocks differ.
_BEFORE = timedelta(hours=1)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str = field(repr=False)

    @property
    def both(self) -> str:
        """Key and certificate in one text, as Java's clients take them."""
        return self.key + self.certificate

    def write(self, certificate: Path, key: Path | None = None) -> None:
        """Write the two files, or one with both; other users of the machine may not read a key."""
        if key is None:
            write_secret(certificate, self.both)
        else:
            write_secret(key, self.key)
            certificate.write_text(self.certificate)


class Authority:
    """Signs certificates with a key of its own."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def new(cls, name: str = "Tailrace development") -> Authority:
        """An authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        now = datetime.now(UTC)
        built = (
            _builder(subject, subject, key.public_key(), now - _BEFORE, now + 10 * _YEAR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(built.sign(key, hashes.SHA256()), key)

    @classmethod
    def kept(cls, directory: Path) -> Authority:
        """The authority that a directory holds in `ca.pem` and `ca.key`; a new one if it holds none."""
        certificate, key = directory / "ca.pem", directory / "ca.key"
        if certificate.exists() and key.exists():
            own = load_pem_private_key(key.read_bytes(), None)
            if isinstance(own, ec.EllipticCurvePrivateKey):
                return cls(x509.load_pem_x509_certificate(certificate.read_bytes()), own)
        made = cls.new()
        directory.mkdir(parents=True, exist_ok=True)
        Issued(made.certificate, _key_text(made._key)).write(certificate, key)
        return made

    @property
    def certificate(self) -> str:
        """What others have to trust, as PEM."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = LOCAL,
        *,
        begins: datetime | None = None,
        ends: datetime | None = None,
    ) -> Issued:
        """A certificate for a name, by default for a year, which servers of these hosts and clients may show."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = (
            _builder(
                _named(name),
                self._certificate.subject,
                key.public_key(),
                begins or min(now, ends or now) - _BEFORE,
                ends or now + _YEAR,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(signed_by, critical=False)
        )
        if hosts:
            alternatives = x509.SubjectAlternativeName([_host(one) for one in hosts])
            built = built.add_extension(alternatives, critical=False)
        signed = built.sign(self._key, hashes.SHA256())
        return Issued(signed.public_bytes(Encoding.PEM).decode(), _key_text(key))


def write_secret(file: Path, text: str) -> None:
    """Write a file that only this user may read, also if it was there before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(file.name + ".new")
    with suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    beside.rename(file)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
