"""Spark's options hold no secret: a file of this user alone does, until there is a newer one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tailrace.errors import SettingError
from tailrace.kafka.brokers import Brokers
from tailrace.pipeline.spark.spark_kafka import SparkKafka
from tailrace.properties import read_properties
from tailrace.settings import Settings

FILE = """bootstrap.servers=broker:9093
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.username=movies
sasl.password={password}
"""


class Changed:
    """A file for `--kafka-config` that changes, and Spark's options."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tailrace.kafka.brokers._LOOK", 0)
        self._file = directory / "kafka.properties"
        self.secrets = directory / "scratch"
        self.secrets.mkdir()
        self.change("password-0")
        self.brokers = Brokers.of(Settings({"kafka-config": str(self._file)}))
        self.kafka = SparkKafka(self.brokers, self.secrets)

    def change(self, password: str) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(FILE.format(password=password))
        beside.rename(self._file)

    def told(self) -> tuple[str, str]:
        """The option for the login, and what Java's client reads by it."""
        option = self.kafka.source()["kafka.sasl.jaas.config"]
        provider, file, name = option.removeprefix("${").removesuffix("}").split(":")
        assert provider == "tailrace"
        return option, read_properties(file)[name].value


def test_a_changed_password_is_in_a_file_of_its_own_and_old_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Changed(tmp_path, monkeypatch)
    seen = set()
    for number in range(4):
        changed.change(f"password-{number}")
        option, login = changed.told()
        assert f"password-{number}" in login and "password" not in option.replace(str(tmp_path), "")
        seen.add(option)
        left = list(changed.secrets.iterdir())
        assert len(left) <= 2 and all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in left)
    assert len(seen) == 4


def test_a_file_that_was_written_again_with_the_same_content_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Changed(tmp_path, monkeypatch)
    before = changed.brokers.revision
    for _ in range(3):
        changed.change("password-0")
        assert changed.brokers.revision == before


def test_a_directory_that_java_can_not_be_told_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Changed(tmp_path, monkeypatch).brokers
    directory = tmp_path / "a:b"
    directory.mkdir()
    with pytest.raises(SettingError, match="expected a path without ':'"):
        SparkKafka(brokers, directory).sink()
