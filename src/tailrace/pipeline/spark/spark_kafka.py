"""How Spark connects to Kafka: the options of its source and its sink, with no secret in them.

Options are seen in plans, logs and Spark's own pages. So what holds a secret is in a file that this user alone may
read, in a directory that goes when the pipeline ends, and an option names the file: Kafka's client reads it when it
connects. On a cluster, every machine needs the directory at the same path.
"""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.errors import SettingError
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.config.entries import CONSUMER, PRODUCER
from tailrace.properties import properties_text

_PROVIDER = "tailrace"
_PROVIDED = {
    "config.providers": _PROVIDER,
    f"config.providers.{_PROVIDER}.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}
# Java's own longest pause is a second, after which every client of a broker that refuses would come back.
_SELDOM = {"kafka.reconnect.backoff.max.ms": "10000"}
# How many files with secrets there are at most.
_KEPT = 2


class SparkKafka:
    """The brokers as Spark's clients are told of them. `directory` is for the file with secrets."""

    def __init__(self, brokers: Brokers, directory: Path | None = None) -> None:
        self.brokers = brokers
        self._directory = directory
        # The files with secrets, the newest one last, and the revision of that one.
        self._files: list[Path] = []
        self._written = -1

    def source(self) -> dict[str, str]:
        """The options of Spark's source."""
        return self._options(CONSUMER)

    def sink(self) -> dict[str, str]:
        """The options of Spark's sink, and of our own."""
        return self._options(PRODUCER)

    def _options(self, client: str) -> dict[str, str]:
        revision, config = self.brokers.configured
        open_, kept = config.java(client)
        if config.security.protocol == "PLAINTEXT":
            open_.pop("security.protocol")
        if kept:
            file = self._file(revision, kept)
            open_ |= _PROVIDED | {name: f"${{{_PROVIDER}:{file}:{name}}}" for name in kept}
        usual = {"kafka.bootstrap.servers": self.brokers.servers, **_SELDOM}
        return usual | {f"kafka.{name}": value for name, value in open_.items()}

    def _file(self, revision: int, kept: dict[str, str]) -> Path:
        """The file with secrets; another one after they have changed, so that no client is taken for a newer one."""
        if self._directory is None:
            raise RuntimeError("a directory for secrets comes first")
        if self._written != revision:
            file = self._directory.absolute() / f"kafka-{revision}.properties"
            if unfit := set(":}") & set(str(file)):
                raise SettingError(
                    f"--checkpoints: expected a path without {unfit.pop()!r}, because Spark's clients find Kafka's "
                    f"secrets by it, got {str(self._directory)!r}"
                )
            opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(opened, "w", encoding="utf-8") as text:
                text.write(properties_text(kept))
            self._files.append(file)
            self._written = revision
            # What runs with the one before may still open a connection with it.
            while len(self._files) > _KEPT:
                self._files.pop(0).unlink(missing_ok=True)
        return self._files[-1]
