"""Settings: flag, variable and documentation are one table."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.errors import SettingError
from tailrace.settings import TABLE, Settings, add_flags, forget_secrets, page, seconds

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


SECRETS = [setting for setting in TABLE if setting.kind == "secret"]


def test_settings_show_no_value() -> None:
    settings = Settings.read(Namespace(redis="redis://:c4nary@h"), {one.variable: "c4nary" for one in SECRETS})
    assert "c4nary" not in repr(settings) and "c4nary" not in str(settings)


def test_a_secret_may_be_in_a_file_and_in_one_place_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("c4nary\n")
    for one in SECRETS:
        settings = Settings.read(Namespace(), {f"{one.variable}_FILE": str(file)})
        assert settings.secret(one.name) == ("c4nary", (file,))
        with pytest.raises(SettingError, match=f"^{one.variable}_FILE: .*in one place") as caught:
            Settings.read(Namespace(), {f"{one.variable}_FILE": str(file), one.variable: "c4nary"})
        assert "c4nary" not in str(caught.value)


def test_a_secret_in_the_place_of_its_file_is_not_shown() -> None:
    for one in SECRETS:
        with pytest.raises(SettingError, match=f"^{one.variable}_FILE: .*no absolute path") as caught:
            Settings.read(Namespace(), {f"{one.variable}_FILE": "c4nary"})
        assert "c4nary" not in str(caught.value)


def test_the_content_in_the_place_of_a_path_is_not_shown() -> None:
    for one in (one for one in TABLE if one.kind == "file"):
        for text in ("-----BEGIN PRIVATE KEY-----c4nary", "c4nary\nc4nary"):
            with pytest.raises(SettingError, match=f"^{one.variable}: expected the path of a file") as caught:
                Settings.read(Namespace(), {one.variable: text})
            assert "c4nary" not in str(caught.value)


@pytest.mark.parametrize("command", ["pipeline", "revoke", "dev"])
def test_a_secret_as_a_flag_is_refused_without_showing_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for one in SECRETS:
        for arguments in ([one.flag, "c4nary"], [f"{one.flag}=c4nary"], [one.flag]):
            with pytest.raises(SystemExit):
                main([command, "movies", *arguments])
            said = capsys.readouterr().err
            assert f"set {one.variable}, or {one.variable}_FILE" in said and "c4nary" not in said


def test_what_follows_an_unknown_flag_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--pasword", "c4nary"], ["--pasword=c4nary"], ["c4nary"]):
        with pytest.raises(SystemExit):
            main(["status", "movies", *arguments])
        said = capsys.readouterr().err
        assert "unrecognized arguments: " in said and "c4nary" not in said


def test_processes_that_are_started_get_no_secret() -> None:
    kept = {
        "PATH": "/bin",
        "TAILRACE_KAFKA": "kafka:9092",
        "TAILRACE_REDIS": "redis://ann@host:6379/0",
        "TAILRACE_JWT_SECRET_FILE": "/run/secrets/jwt",
    }
    environment = (
        kept | {one.variable: "c4nary" for one in SECRETS} | {"TAILRACE_REGISTRY": "https://ann@host:c4nary@host"}
    )
    forget_secrets(environment)
    assert environment == kept
    other = {"TAILRACE_REDIS": "redis+sentinel://h/m?sentinel_password=c4nary"}
    forget_secrets(other)
    assert other == {}


def test_a_password_in_a_flag_is_warned_of_without_showing_it() -> None:
    flags = Namespace(redis="redis://ann:c4nary@host", registry="https://ann:c4nary@host")
    warnings = Settings.read(flags, {}).seen_passwords()
    assert [warning.partition(" ")[0] for warning in warnings] == ["--redis", "--registry"]
    assert all("every user" in one and "_PASSWORD_FILE" in one and "c4nary" not in one for one in warnings)
    variables = {"TAILRACE_REDIS": flags.redis, "TAILRACE_REGISTRY": flags.registry}
    assert Settings.read(Namespace(redis=None), variables).seen_passwords() == []
    assert Settings.read(Namespace(redis="redis://host"), {}).seen_passwords() == []
