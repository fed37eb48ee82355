"""What Kafka refuses this process now: its TLS, its password, a right that it needs.

A client retries for ever and says only that it had no answer. What it has heard meanwhile is kept here, in words that
name the file or the right, for errors and for health. While something is refused, one question at a time is asked
again, some seconds apart, so that a refusal ends here when it ends there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.listener_check import listener_problem
from tailrace.kafka.config.reasons import RIGHTS, how, reason

log = logging.getLogger(__name__)

_EVERY = 30.0
# The first pause between two tries, in seconds, and the longest.
_FIRST, _LONGEST = 1.0, 10.0
_TIMEOUT = 5.0
# How long an answer of our own connection serves.
_CHECKED = 5.0
_CREDENTIALS = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
# What a client says of a connection that does not come about, for whatever reason.
_CONNECTION = (KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)

# What a client says of a login that was cut off: nobody has refused it.
_CUT = "Broker transport failure"

# What is refused if this process may not connect at all.
_CONNECT = "to connect"

Asked = Callable[[AdminClient], bool]
Rights = Collection[AclOperation]


class Refusals:
    """Keeps what Kafka refuses this process, as long as it does. Any thread may tell and ask.

    config: what is in force now; admin: gives the client that asks again.
    """

    def __init__(self, servers: str, config: Callable[[], KafkaConfig], admin: Callable[[], AdminClient]) -> None:
        self._servers = servers
        self._config = config
        self._admin = admin
        # By what is refused: why, and what to ask to learn that it is not any more.
        self._refused: dict[str, tuple[str, Asked]] = {}
        # The configuration with which this process was not let in.
        self._refused_with: KafkaConfig | None = None
        # Connections fail, and nobody has looked yet why.
        self._suspected = False
        self._asking = False
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        # When a connection of our own is due again, how the last one was configured, and what it found.
        self._checked: tuple[float, KafkaConfig | None, str | None] = (0.0, None, None)

    @property
    def current(self) -> list[str]:
        """Why Kafka refuses something to this process; empty if it does not."""
        with self._lock:
            return [why for why, _ in self._refused.values()]

    @property
    def connection(self) -> str | None:
        """Why this process may not connect at all; None if it may."""
        with self._lock:
            return self._refused[_CONNECT][0] if _CONNECT in self._refused else None

    def of_reading(self, topic: str) -> str | None:
        """Why this process may not read a topic, if it has tried."""
        with self._lock:
            found = self._refused.get(f"Read on topic {topic}")
        return found[0] if found is not None else None

    @property
    def useless(self) -> str | None:
        """Why nothing can be asked of Kafka, as this process is configured now; None if that is not known."""
        return self.connection if self._refused_with is self._config() else None

    def listener(self, what: str) -> Callable[[KafkaError], None]:
        """A callback for a client's errors. It logs each error code, then not again for a while.

        While this process may not connect, nothing is logged: that was told once, for all clients.
        """
        told: dict[int, float] = {}

        def tell(error: KafkaError) -> None:
            self.note(error)
            now, code = time.monotonic(), int(error.code())
            if self.connection is None and (code not in told or now - told[code] >= _EVERY):
                told[code] = now
                log.warning("%s: Kafka: %s; the client goes on trying", what, self.said(error))

        return tell

    def note(self, error: KafkaError) -> None:
        """Keep an error if it says that this process may not connect, and look into it if it may mean that."""
        cut = _CUT in error.str()
        if error.code() in _CREDENTIALS and not cut:
            self._refuse(_CONNECT, self.said(error), _connects)
        elif error.code() in _CONNECTION or cut:
            with self._lock:
                self._suspected = True
            self._ask()

    def why(self, error: KafkaError | str) -> str:
        """What is behind an error: what is refused, or else what the error says."""
        if isinstance(error, KafkaError) and error.code() in RIGHTS:
            return self.said(error)
        if isinstance(error, KafkaError) and error.code() in _CREDENTIALS:
            self.note(error)
        if (refused := self.connection or self._listener_problem()) is not None:
            return refused
        return error if isinstance(error, str) else self.said(error)

    def unread(self, error: KafkaError, topic: str, group: str = "", *, joins: bool = True) -> None:
        """Keep an error that came in the place of a record of a topic, or of a place in a consumer group.

        joins: whether a place is wanted. A client that wants none asks who coordinates its group all the same.
        """
        self.note(error)
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and topic:
            self._lacks(error, f"topic {topic}", "Read", lambda admin: _rights_on(admin, topic))
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and group:
            right = "Read" if joins else "Describe"
            self._lacks(error, f"consumer group {group}", right, lambda admin: _rights_in(admin, group))

    def doubt(self, topic: str) -> None:
        """See whether this process may know of a topic from which nothing comes: a client says nothing of that.

        Any other answer, also that there is no such topic, means nothing here.
        """
        threading.Thread(target=self._look_for, args=(topic,), name="kafka doubt", daemon=True).start()

    def unwritten(self, error: KafkaError, topic: str) -> None:
        """Keep an error because of which a record was not written to a topic."""
        self.note(error)
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and topic:
            self._lacks(error, f"topic {topic}", "Write", lambda admin: _rights_on(admin, topic))

    def unwritable(self, topic: str) -> KafkaError | None:
        """The error if this process may not write to a topic; None if it may, or if that is not known now."""
        try:
            allowed = _rights_on(self._admin(), topic)
            # Not all brokers say what is allowed.
            if not allowed or AclOperation.WRITE in allowed:
                return None
            error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        except TimeoutError:
            return None
        except KafkaException as found:
            error = found.args[0]
            if error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return None
        self.unwritten(error, topic)
        return error

    def said(self, error: KafkaError) -> str:
        """What an error means."""
        return reason(error.code(), error.str(), self._config())

    def _listener_problem(self) -> str | None:
        """What a connection of our own finds; one answer serves for some seconds, because clients fail many times."""
        with self._checking:
            config, (until, before, found) = self._config(), self._checked
            if time.monotonic() >= until or config is not before:
                problem = listener_problem(self._servers, config.security)
                found = f"{problem} ({how(config)})" if problem is not None else None
                self._checked = (time.monotonic() + _CHECKED, config, found)
            return found

    def _look_for(self, topic: str) -> None:
        try:
            _rights_on(self._admin(), topic)
        except (KafkaException, TimeoutError) as error:
            if error.args and isinstance(error.args[0], KafkaError):
                self.unread(error.args[0], topic)

    def _lacks(self, error: KafkaError, what: str, right: str, rights: Callable[[AdminClient], Rights]) -> None:
        why = f"{what}: {self.said(error)}: allow {right} on it"
        self._refuse(f"{right} on {what}", why, lambda admin: AclOperation[right.upper()] in rights(admin))

    def _refuse(self, what: str, why: str, asked: Asked) -> None:
        with self._lock:
            before = self._refused.get(what)
            self._refused[what] = (why, asked)
            if what == _CONNECT:
                self._refused_with = self._config()
        if before is None or before[0] != why:
            log.error("Kafka: %s", why)
        self._ask()

    def _ask(self) -> None:
        """Ask again and again in a thread, until nothing is refused any more; one thread does."""
        with self._lock:
            if self._asking:
                return
            self._asking = True
        threading.Thread(target=self._ask_again, name="kafka refusals", daemon=True).start()

    def _ask_again(self) -> None:
        pause = _FIRST
        while True:
            if self._suspected and (problem := self._listener_problem()) is not None:
                self._refuse(_CONNECT, problem, _connects)
            with self._lock:
                self._suspected = False
                open_ = {what: asked for what, (_, asked) in self._refused.items()}
                if not open_:
                    self._asking = False
                    return
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST)
            admin = self._admin()
            ended = [what for what, asked in open_.items() if _holds(admin, asked)]
            with self._lock:
                for what in ended:
                    del self._refused[what]
            if _CONNECT in ended:
                # What was found before does not hold any more.
                with self._checking:
                    self._checked = (0.0, None, None)
            if ended:
                log.info("Kafka: no longer refused: %s", ", ".join(ended))


def _holds(admin: AdminClient, asked: Asked) -> bool:
    try:
        return asked(admin)
    except TimeoutError:
        return False
    except KafkaException as error:
        # Its callback has said why, if it was refused.
        admin.poll(0)
        return error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)


def _connects(admin: AdminClient) -> bool:
    admin.list_topics(timeout=_TIMEOUT)
    return True


def _rights_on(admin: AdminClient, topic: str) -> Rights:
    (pending,) = admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=_TIMEOUT
    ).values()
    return pending.result(timeout=_TIMEOUT + 1).authorized_operations or ()


def _rights_in(admin: AdminClient, group: str) -> Rights:
    (pending,) = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=_TIMEOUT
    ).values()
    return pending.result(timeout=_TIMEOUT + 1).authorized_operations or ()
