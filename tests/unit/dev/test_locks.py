"""The locks of `tailrace dev --secure`: what stays from run to run, and who may read it."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from cryptography import x509

from tailrace import App
from tailrace.dev.locks import Locks

NAMES = ("ca.pem", "ca.key", "jwt.key", "operator.redis-password")


def app_of(*feeds: str) -> App:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long, rating double")
    app.view("averages", ratings, key="movie_id", columns={"rating": "avg(rating)"})
    for name in feeds:
        app.feed(name, ratings, key="movie_id")
    return app


def test_clients_go_on_with_what_they_have_and_certificates_are_new(tmp_path: Path) -> None:
    directory = tmp_path / "locks"
    Locks(directory, app_of())
    kept = [(directory / name).read_text() for name in NAMES]
    certificate, users = ((directory / name).read_text() for name in ("gateway.pem", "redis.acl"))
    Locks(directory, app_of("notes"), hosts=["here.example"])
    assert [(directory / name).read_text() for name in NAMES] == kept
    renewed = (directory / "gateway.pem").read_text()
    assert renewed != certificate
    found = x509.load_pem_x509_certificate(renewed.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "here.example"} <= set(names.get_values_for_type(x509.DNSName))
    # The rights are those of the app as it is now.
    assert "+xadd" not in users and "+xadd" in (directory / "redis.acl").read_text()


def test_another_directory_has_other_secrets(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Locks(tmp_path / name, app_of())
    assert all((tmp_path / "one" / name).read_text() != (tmp_path / "two" / name).read_text() for name in NAMES)


def test_redis_gets_digests_of_passwords_and_no_user_without_one(tmp_path: Path) -> None:
    Locks(tmp_path, app_of())
    users = (tmp_path / "redis.acl").read_text()
    assert users.startswith("user default off\n")
    for user in ("materializer", "gateway", "operator", "admin"):
        password = (tmp_path / f"{user}.redis-password").read_text().strip()
        digest = hashlib.sha256(password.encode()).hexdigest()
        assert f"user {user} on #{digest} " in users and password not in users
    assert "nopass" not in users and "user pipeline" not in users


def test_secrets_are_for_their_owner_alone_also_in_a_directory_that_was_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Locks(tmp_path, app_of())
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    for file in tmp_path.iterdir():
        public = file.suffix == ".pem" and "PRIVATE" not in file.read_text()
        assert public or stat.S_IMODE(file.stat().st_mode) == 0o600, file
