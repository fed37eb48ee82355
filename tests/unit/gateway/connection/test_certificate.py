"""The gateway's certificate: mistakes are one clear line, and what can't be used changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tailrace.dev.certificates import Authority, Issued
from tailrace.errors import SettingError
from tailrace.gateway.connection.certificate import ServerCertificate, read_certificate

AUTHORITY = Authority.new()
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def written(directory: Path, issued: Issued) -> tuple[str, str]:
    """The files of a certificate."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    issued.write(certificate, key)
    return str(certificate), str(key)


def encrypted(key: str) -> str:
    held = load_pem_private_key(key.encode(), None)
    return held.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")).decode()


def test_neither_setting_is_no_certificate_and_one_alone_is_a_mistake(tmp_path: Path) -> None:
    certificate, key = written(tmp_path, AUTHORITY.issue("gateway"))
    assert read_certificate("", "") is None
    assert read_certificate(certificate, key) is not None
    with pytest.raises(SettingError, match=r"^--tls-key: expected the file of the key with --tls-cert, got none$"):
        read_certificate(certificate, "")
    with pytest.raises(SettingError, match=r"^--tls-cert: expected the file of the certificate with --tls-key"):
        read_certificate("", key)


ISSUED = AUTHORITY.issue("gateway")
OTHER = AUTHORITY.issue("other")


@pytest.mark.parametrize(
    ("issued", "mistake"),
    [
        (Issued(ISSUED.certificate, OTHER.key), r"--tls-key: expected the key of the first certificate in .*, got an"),
        (Issued(AUTHORITY.certificate + ISSUED.certificate, ISSUED.key), r"--tls-key: .* comes first"),
        (Issued(ISSUED.key, ISSUED.key), r"--tls-cert: expected a certificate as PEM .* got something else"),
        (Issued(ISSUED.certificate, ISSUED.certificate), r"--tls-key: expected a private key as PEM"),
        (Issued(ISSUED.certificate, "none"), r"--tls-key: expected a private key as PEM"),
        (Issued(ISSUED.certificate, encrypted(ISSUED.key)), r"--tls-key: .* without a password, got an encrypted one"),
        (AUTHORITY.issue("gateway", ends=NOW - DAY), r"--tls-cert: expected .* valid now, got one that ended on \d"),
        (AUTHORITY.issue("gateway", begins=NOW + DAY), r"--tls-cert: expected .* valid now, got one from \d.* on"),
    ],
    ids=["another-key", "wrong-order", "no-certificate", "no-key", "nonsense", "encrypted", "expired", "early"],
)
def test_what_no_client_could_be_shown_is_one_line_that_says_which_file(
    tmp_path: Path, issued: Issued, mistake: str
) -> None:
    certificate, key = written(tmp_path, issued)
    with pytest.raises(SettingError, match=f"^{mistake}") as caught:
        ServerCertificate(certificate, key)
    assert "\n" not in str(caught.value) and "-----BEGIN CERTIFICATE-----\n" not in str(caught.value)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_file_is_named(tmp_path: Path, missing: int) -> None:
    files = written(tmp_path, ISSUED)
    Path(files[missing]).unlink()
    flag = ("--tls-cert", "--tls-key")[missing]
    with pytest.raises(SettingError, match=rf"^{flag}: expected a file that can be read, got '{files[missing]}': No"):
        ServerCertificate(*files)


def test_new_files_are_used_once_both_are_there_and_until_then_the_old_ones_stay(tmp_path: Path) -> None:
    files = written(tmp_path, ISSUED)
    held = ServerCertificate(*files)
    first = held.context
    held.look()
    assert held.context is first and held.problems == []
    Path(files[1]).write_text(OTHER.key)
    held.look()
    assert held.context is first
    (problem,) = held.problems
    assert problem.startswith("--tls-key: expected the key of the first certificate")
    Path(files[0]).unlink()
    held.look()
    assert held.context is first and "No such file" in held.problems[0]
    Path(files[0]).write_text(OTHER.certificate)
    held.look()
    assert held.context is not first and held.problems == []


def test_a_certificate_that_expires_while_it_is_shown_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = ServerCertificate(*written(tmp_path, AUTHORITY.issue("gateway", ends=NOW + DAY)))
    assert held.problems == []

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # noqa: ARG003
            return NOW + 2 * DAY

    monkeypatch.setattr("tailrace.gateway.connection.certificate.datetime", Later)
    held.look()
    assert "got one that ended on" in held.problems[0]
