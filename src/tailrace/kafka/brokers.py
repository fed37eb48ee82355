"""The brokers of a cluster, and every client that connects to them.

Clients are opened here alone, so that one file serves all of them: their own settings first, then what the file says
beside, then what a promise depends on. If the file changes on disk, or one that it names, `revision` rises. Whoever
holds a client opens it anew then; `Renewed` does that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tailrace.credentials.fingerprints import fingerprints
from tailrace.errors import SettingError, Unreachable
from tailrace.kafka.config.entries import ADMIN, CONSUMER, PRODUCER
from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.reasons import RIGHTS, refused_in
from tailrace.kafka.config.security import Secrets
from tailrace.kafka.refusals import Refusals
from tailrace.settings import Settings

log = logging.getLogger(__name__)

Own = Mapping[str, Any]
Client = TypeVar("Client")
Answer = TypeVar("Answer")

# A client sees a new topic after this time. The default is five minutes. For that long a client may also stand still
# after its only broker was stopped in order: it has heard that nobody leads the partition, and has nobody left to ask.
REFRESH = {"topic.metadata.refresh.interval.ms": 5_000}
# The pause does not grow if a broker takes connections and refuses the login: by default, each client of such a broker
# comes back eleven times a second.
_PAUSE = {"reconnect.backoff.ms": 1_000}
# How often files are looked at, in seconds.
_LOOK = 2.0
# How long to wait for an answer at a time, before looking whether there will be none.
_STEP = 0.2
_NOTHING: Own = {}
# What serving a producer raises after a fatal error, such as that its user may write to no topic at all: then it can't
# be idempotent. The client loses the error if it has to report on a record at the same time.
FATAL = (KafkaException, AttributeError, SystemError)
# How often to see whether this process may connect, and how long to wait for the answer, in seconds.
_WATCH, _WATCHED = 30.0, 5.0


class Brokers:
    """The brokers at some addresses, and how this process connects to them; as text, the addresses.

    read: reads the configuration anew after one of its files has changed.
    """

    def __init__(
        self, servers: str, config: KafkaConfig | None = None, read: Callable[[], KafkaConfig] | None = None
    ) -> None:
        self.servers = servers
        self.config = config if config is not None else KafkaConfig()
        self._read = read
        self._revision = 0
        # Of no file yet: one may have changed since it was read.
        self._seen: list[tuple[int, int, int] | None] = []
        self._look_at = 0.0
        self._lock = threading.Lock()
        self._admin: Renewed[AdminClient] = Renewed(
            self, lambda: AdminClient(self._told(ADMIN, "topics", _NOTHING, _NOTHING))
        )
        # Why the changed files can't be used, as long as they can't.
        self.unread: str | None = None
        self.refusals = Refusals(servers, lambda: self.config, self.admin)

    @classmethod
    def of(cls, settings: Settings, servers: str | None = None) -> Brokers:
        """The brokers that a process's settings name. Raises SettingError for a file that can't be used."""
        asked = settings.text("kafka") if servers is None else servers
        path = settings.text("kafka-config")

        def read() -> KafkaConfig:
            secrets, files = read_secrets(settings)
            return KafkaConfig.read(path, secrets, files)

        if not path:
            _require_nothing_unused(settings)
            return cls(asked)
        config = read()
        if config.servers and servers is None and settings.given("kafka") and asked != config.servers:
            raise SettingError(
                f"{path}: bootstrap.servers: expected the same as --kafka (TAILRACE_KAFKA), got another value: "
                "remove one of the two"
            )
        return cls(config.servers if config.servers and not settings.given("kafka") else asked, config, read)

    def __str__(self) -> str:
        return self.servers

    def __bool__(self) -> bool:
        return bool(self.servers)

    @property
    def revision(self) -> int:
        """Rises when the files of the configuration have changed and could be read."""
        return self.configured[0]

    @property
    def configured(self) -> tuple[int, KafkaConfig]:
        """The revision, and the configuration that it is of."""
        with self._lock:
            if self._read is not None and time.monotonic() >= self._look_at:
                self._look()
            return self._revision, self.config

    def problems(self) -> list[str]:
        """Why this process may not do with Kafka what it must; empty if it may. For health, at any time."""
        # A process that asks Kafka for nothing now must know of a file that it can't use, too.
        _ = self.revision
        unread = [self.unread] if self.unread is not None else []
        return [f"Kafka at {self.servers}: {why}" for why in (*self.refusals.current, *unread)]

    def consumer(self, what: str, fixed: Own, usual: Own = _NOTHING) -> Consumer:
        """A consumer. `what` names it in logs; the file may replace what is usual, and nothing that is fixed."""
        return Consumer(self._told(CONSUMER, what, fixed, usual))

    def producer(self, what: str, fixed: Own, usual: Own = _NOTHING) -> Producer:
        """A producer, which keeps records in order unless the file gives that up."""
        idempotence = {"enable.idempotence": self.config.idempotent}
        # Like Kafka's own clients, so that a key goes to the same partition, whoever writes it.
        return Producer(self._told(PRODUCER, what, {"partitioner": "murmur2_random", **idempotence, **fixed}, usual))

    def admin(self) -> AdminClient:
        """The one client of this process that asks about topics and groups."""
        return self._admin.get()

    def watch(self) -> None:
        """From now on, see now and then whether this process may connect, so that `problems` knows it.

        For a process that may ask Kafka for nothing for hours, and must not learn from a client's request.
        """
        threading.Thread(target=self._watch, name="kafka watch", daemon=True).start()

    def why(self, error: KafkaError | str) -> str:
        """Why something failed: what Kafka refuses this process now, or else what the client says of it."""
        if (admin := self._admin.current) is not None:
            # This client tells errors of its connections when it is asked alone.
            admin.poll(0)
        return self.refusals.why(error)

    def fatal(self, topic: str, error: Exception) -> str:
        """Why a producer for a topic has raised one of `FATAL`."""
        refused = self.refusals.unwritable(topic)
        return f"topic {topic}: {self.why(refused)}: allow Write on it" if refused is not None else repr(error)

    def refused(self, text: str) -> str | None:
        """Why Kafka refuses what a program in Java tried, if it failed with this text because of that."""
        error = refused_in(text)
        if error is None:
            return None
        why = self.why(error)
        remedy = ": allow Read on it, or Write if it is written" if error.code() in RIGHTS else ""
        return f"Kafka at {self.servers}: {why}{remedy}"

    def unreachable(self, error: KafkaException, beside: str = "", remedy: str = "") -> Unreachable:
        """The error if a question was not answered: why, and what to do.

        beside: what the question was about; remedy: what to do if a right is missing.
        """
        about = f"Kafka at {self.servers}{beside}"
        why = self.why(error.args[0])
        if error.args[0].code() in RIGHTS:
            return Unreachable(f"{about}: {why}" + (f": {remedy}" if remedy else ""))
        if self.refusals.connection is not None:
            return Unreachable(f"{about}: {why}")
        return Unreachable(f"{about} did not answer: {why}. Start the broker, or correct --kafka (TAILRACE_KAFKA)")

    def answer(self, pending: Future[Answer], timeout: float) -> Answer:
        """The answer to a question of the admin client. Raises KafkaException, early if connections are refused."""
        deadline = time.monotonic() + timeout
        while True:
            with suppress(TimeoutError):
                return pending.result(timeout=_STEP)
            self.admin().poll(0)
            if self.refusals.connection is not None or time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _watch(self) -> None:
        while True:
            if self.refusals.connection is None:
                with suppress(KafkaException):
                    self.answer(self.admin().describe_cluster(request_timeout=_WATCHED), _WATCHED + 1)
            until = time.monotonic() + _WATCH
            while time.monotonic() < until:
                # This client tells errors of its connections when it is asked alone.
                self.admin().poll(1.0)

    def _told(self, client: str, what: str, fixed: Own, usual: Own) -> dict[str, Any]:
        said = self.config.librdkafka(client)
        return {
            **REFRESH,
            # The longest pause must not be shorter.
            **({} if "reconnect.backoff.max.ms" in said else _PAUSE),
            "log_level": 0,
            "error_cb": self.refusals.listener(what),
            **usual,
            **said,
            **fixed,
            "bootstrap.servers": self.servers,
        }

    def _look(self) -> None:
        self._look_at = time.monotonic() + _LOOK
        # Before they are read: a file that changes meanwhile, or of which half was written, is read again.
        found = fingerprints(self.config.files)
        if self._read is None or (found == self._seen and self.unread is None):
            return
        try:
            config = self._read()
        except SettingError as error:
            if self.unread != str(error):
                log.error("Kafka: the changed configuration is not used: %s", error)
            self.unread = str(error)
            return
        if self.unread is not None:
            log.info("Kafka: the changed configuration can be used now")
        self._seen, self.unread = found, None
        if config == self.config:
            return
        if config.servers and config.servers != self.servers:
            log.warning("Kafka: bootstrap.servers has changed in %s: that needs a restart", config.files[0])
        self.config = config
        self._revision += 1
        log.info("Kafka: credentials and certificates were read anew; connections are opened with them")


class Renewed(Generic[Client]):
    """A client that is opened when it is first asked for, and anew after the configuration has changed."""

    def __init__(
        self, brokers: Brokers, open_: Callable[[], Client], close: Callable[[Client], object] | None = None
    ) -> None:
        self._brokers = brokers
        self._open = open_
        self._close = close
        self._client: Client | None = None
        self._revision = -1

    def get(self) -> Client:
        """The client, as the configuration is now."""
        revision = self._brokers.revision
        if self._client is None or revision != self._revision:
            self.close()
            self._client, self._revision = self._open(), revision
        return self._client

    @property
    def current(self) -> Client | None:
        """The client, if there is one and it needs not be opened anew."""
        return self._client if self._revision == self._brokers.revision else None

    def close(self) -> None:
        """Close the client; the next one that asks gets another."""
        client, self._client = self._client, None
        if client is not None and self._close is not None:
            self._close(client)


def read_secrets(settings: Settings) -> tuple[Secrets, tuple[Path, ...]]:
    """The secrets that are not in the file of `--kafka-config`, and the files that they are in."""
    sasl, of_sasl = settings.secret("kafka-sasl-password")
    key, of_key = settings.secret("kafka-key-password")
    return Secrets(sasl, key), (*of_sasl, *of_key)


def _require_nothing_unused(settings: Settings) -> None:
    secrets, _ = read_secrets(settings)
    if secrets.sasl is not None or secrets.key is not None:
        raise SettingError(
            "TAILRACE_KAFKA_…PASSWORD: expected --kafka-config (TAILRACE_KAFKA_CONFIG) with it, which says what the "
            "password is for, got none"
        )
