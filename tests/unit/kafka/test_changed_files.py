"""What a running process does if the files change by which it connects to Kafka."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from tailrace.kafka.brokers import Brokers
from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.security import Secrets
from tailrace.settings import Settings

FILE = """bootstrap.servers=broker:9093
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.username=movies
"""


class Files:
    """A file for `--kafka-config`, with the password in another one."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tailrace.kafka.brokers._LOOK", 0)
        self.config, self.password = directory / "kafka.properties", directory / "password"
        self.config.write_text(FILE)
        self.password.write_text("first")
        environment = {"TAILRACE_KAFKA_SASL_PASSWORD_FILE": str(self.password)}
        self.settings = Settings.read(Namespace(kafka_config=str(self.config)), environment)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(tmp_path, monkeypatch)


def test_a_password_in_a_file_of_its_own_is_taken_up(files: Files) -> None:
    brokers = Brokers.of(files.settings)
    before = brokers.revision
    files.password.write_text("second")
    revision, config = brokers.configured
    assert revision > before and config.security.password == "second"


def test_a_file_that_changes_while_it_is_read_is_read_again(files: Files) -> None:
    reads = []

    def read() -> KafkaConfig:
        password = files.password.read_text()
        reads.append(password)
        if password == "second":
            files.password.write_text("third!")
        return KafkaConfig.read(str(files.config), Secrets(password), (files.password,))

    brokers = Brokers("broker:9093", read(), read)
    files.password.write_text("second")
    assert brokers.configured[1].security.password == "second"
    assert brokers.configured[1].security.password == "third!"
    assert brokers.revision and reads.count("third!") == 1


def test_health_tells_of_a_file_that_can_not_be_used_until_it_can_also_if_nothing_is_asked_of_kafka(
    files: Files, tmp_path: Path
) -> None:
    brokers = Brokers.of(files.settings)
    before = brokers.configured
    # As it was, with the same time and length.
    beside = tmp_path / "beside"
    files.config.rename(beside)
    files.config.write_text(FILE.replace("PLAIN\n", "PLAYN\n"))
    (said,) = brokers.problems()
    assert f"{files.config}:3: sasl.mechanism: expected" in said and brokers.configured == before
    beside.rename(files.config)
    assert brokers.problems() == [] and brokers.configured == before
