"""What may stand in a log."""

from __future__ import annotations

import pytest

from tailrace.logs import shown_path, without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("rediss://user:se:cr%20et@host/0", "rediss://user:***@host/0"),
        ("unix://user:secret@/run/redis.sock", "unix://user:***@/run/redis.sock"),
        ("redis://user:se/c@ret@host/0", "redis://user:***@host/0"),
        (
            "redis+sentinel://:secret@h1:1,h2:2/m?sentinel_password=secret&db=1",
            "redis+sentinel://:***@h1:1,h2:2/m?sentinel_password=***&db=1",
        ),
        ("https://ann@example.com:secret@host:8081", "https://ann@example.com:***@host:8081"),
        ("https://gr/oup:secret@host", "https://gr/oup:***@host"),
        ("redis://user@host:6379/0", "redis://user@host:6379/0"),
        ("user:secret@host:6379/0", "***@host:6379/0"),
        ("redis:user:secret@host", "***@host"),
        ("localhost:6379", "localhost:6379"),
        ("rediss+cluster://user:secret@h1,h2?ssl_password=a@b", "rediss+cluster://user:***@h1,h2?ssl_password=***"),
    ],
)
def test_passwords_are_left_out_of_urls(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_path_is_shown_only_if_it_can_be_no_secret() -> None:
    assert shown_path("/run/secrets/key") == "'/run/secrets/key'"
    for text in ("s3cret", "-----BEGIN PRIVATE KEY-----\nMIGH", "/\nMIGH"):
        assert shown_path(text) == "a text that is no absolute path"
