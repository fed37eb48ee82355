"""What may stand in a log."""

from __future__ import annotations

import pytest

from tailrace.logs import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("rediss://user:se:cr%20et@host/0", "rediss://user:***@host/0"),
        ("unix://user:secret@/run/redis.sock", "unix://user:***@/run/redis.sock"),
    ],
)
def test_passwords_are_left_out_of_urls(url: str, shown: str) -> None:
    assert without_password(url) == shown
