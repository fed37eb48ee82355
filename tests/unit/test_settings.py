"""Settings: flag, variable and documentation are one table."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from tailrace.errors import SettingError
from tailrace.settings import TABLE, Settings, add_flags, page, seconds

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_a_flag_wins_over_the_variable_and_the_variable_over_the_default() -> None:
    environment = {"TAILRACE_BATCH_INTERVAL": "5s", "TAILRACE_PARTITIONS": "8"}
    settings = Settings.read(Namespace(batch_interval="1m"), environment)
    assert settings.seconds("batch-interval") == 60
    assert settings.number("partitions") == 8
    assert settings.text("kafka") == "localhost:9092"


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("TAILRACE_BATCH_INTERVAL", "5", "500ms, 5s, 1m or 1h"),
        ("TAILRACE_BATCH_INTERVAL", "0s", "above zero"),
        ("TAILRACE_PARTITIONS", "0", "above zero"),
        ("TAILRACE_PARTITIONS", "two", "'two'"),
        ("TAILRACE_PORT", "70000", "65535"),
        ("TAILRACE_LOG_LEVEL", "loud", "debug, info"),
        ("TAILRACE_KAFKA", "", "a value"),
        ("TAILRACE_REDIS", "localhost:6379", "redis://localhost"),
        ("TAILRACE_REDIS", "redis://:secret@localhost:port", r"\*\*\*@localhost:port"),
        ("TAILRACE_CREATE_TOPICS", "some", "changelogs or all"),
    ],
)
def test_a_value_that_cannot_be_used_names_the_variable_and_what_was_expected(
    variable: str, value: str, says: str
) -> None:
    with pytest.raises(SettingError, match=says) as caught:
        Settings.read(Namespace(), {variable: value})
    assert str(caught.value).startswith(variable)


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("5s", 5), ("1.5 m", 90), ("1h", 3600)])
def test_durations_are_read_with_their_units(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("command", ["pipeline", "materializer", "gateway", "status", "dev"])
def test_every_flag_of_a_command_is_in_its_help(command: str) -> None:
    parser = ArgumentParser()
    add_flags(parser, command)
    text = parser.format_help()
    for setting in TABLE:
        if command in setting.commands:
            # Every user of a machine sees the flags of a process.
            assert (setting.flag in text) is (setting.kind != "secret")


def test_the_settings_page_is_the_table() -> None:
    assert DOCUMENT.read_text() == page(), "run scripts/document-settings"
