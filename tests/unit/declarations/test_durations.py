"""Durations as declarations spell them."""

from __future__ import annotations

import pytest

from tailrace.declarations.durations import seconds, spark_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 hour", 3600),
        ("90 seconds", 90),
        ("30s", 30),
        ("500ms", 0.5),
        ("2 days", 172800),
        ("1 week", 604800),
        ("1.5m", 90),
        (" 10 minutes ", 600),
    ],
)
def test_a_duration_means_what_it_says(text: str, expected: float) -> None:
    assert seconds(text) == expected and spark_text(text) == f"{round(expected * 1000)} milliseconds"


@pytest.mark.parametrize("text", ["", "hour", "1 month", "-1 hour", "1 hour 5 minutes"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text or "^$"):
        seconds(text)
