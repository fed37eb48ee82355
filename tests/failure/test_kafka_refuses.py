"""Kafka refuses every process while ratings flow; each says why, and goes on by itself when that is corrected.

The processes reach the broker by a relay. To cut its connections is what makes them log in and look at certificates
again. No rating is lost, and no process ends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import ResourceType

from repeating import repeating
from running import Tailrace, eventually
from secured_kafka import PASSWORD, USER, Secured
from tailrace.dev.certificates import Authority, write_secret
from tailrace.dev.redis_server import RedisServer

NAMES = ("pipeline", "materializer", "gateway")
MECHANISM = "SCRAM-SHA-512"
# Several times what two changes of a password took a process when this was written.
MOST_LINES = 50


class Stack:
    """The processes of an app, and the files that say how they connect."""

    def __init__(self, directory: Path, secured: Secured, redis: RedisServer) -> None:
        self.secured = secured
        self.app = Tailrace(directory / "app", secured.broker, redis, f"refused-{secured.relay.port}")
        self.authority = secured.ca
        # The pipeline has its password in its file, the others in a file beside it.
        self.ca, self.shown, self.password = (directory / name for name in ("ca.pem", "client.pem", "password"))
        self.ca.write_text(secured.ca.read_text())
        secured.authority.issue(USER).write(self.shown)
        self.files = dict.fromkeys(NAMES, self._file(sasl_password=None))
        self.files["pipeline"] = self._file()
        write_secret(self.password, PASSWORD)
        self._sent: Counter[int] = Counter()

    def start(self) -> None:
        self.app.kafka_config = self.files["pipeline"]
        self.app.start_pipeline()
        self.app.kafka_config = self.files["gateway"]
        self.app.environment["TAILRACE_KAFKA_SASL_PASSWORD_FILE"] = str(self.password)
        self.app.start_materializer()
        self.app.start_gateway()
        for name in NAMES:
            self.app.wait_ready(name)

    def set_password(self, password: str) -> None:
        """Write a password into the files of all processes."""
        write_secret(self.password, password)
        self._file(sasl_password=password).replace(self.files["pipeline"])

    def problems(self, name: str) -> list[str]:
        """Why a process is not ready; of the gateway, what Kafka refuses it."""
        return list(self.app.health(name)["kafka" if name == "gateway" else "reasons"])

    def say(self, **expected: str) -> None:
        """Wait until the processes say what is expected of each."""
        for name, pattern in expected.items():
            try:
                eventually(lambda: any(re.search(pattern, one) for one in self.problems(name)), name, 90)  # noqa: B023
            except AssertionError:
                raise AssertionError(f"{name} should say {pattern!r}, and says {self.problems(name)}") from None

    def well(self) -> None:
        """Wait until no process says that anything is refused."""
        for name in NAMES:
            eventually(lambda: self.problems(name) == [], f"{name} is well again: {self.problems(name)}", 120)  # noqa: B023

    def lines(self) -> dict[str, int]:
        """How often each process has logged something; a stack trace of Spark's is one."""
        return {name: len(re.findall(r"^[-0-9]{10} ", self.app.parts[name].log.read_text(), re.M)) for name in NAMES}

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Ratings without a pause, until the block ends; then every row has all of them."""
        pids = {name: self.app.parts[name].pid for name in NAMES}

        def flow() -> None:
            movie = self._sent.total() % 7
            self._sent[movie] += 1
            self.app.rate([(movie, 5)])

        with repeating(flow, 0.05):
            yield
        for movie, sent in self._sent.items():
            eventually(lambda: (self.app.row(movie) or {}).get("ratings") == sent, f"{sent} ratings of {movie}")  # noqa: B023
        for name in NAMES:
            self.app.parts[name].check()
            assert self.app.parts[name].pid == pids[name]

    def _file(self, **entries: str | None) -> Path:
        return self.secured.file(
            "CHANGING",
            MECHANISM,
            java=False,
            **{
                "ssl_ca_location": str(self.ca),
                "ssl_certificate_location": None,
                "ssl_key_location": None,
                "ssl_keystore_location": str(self.shown),
                **entries,
            },
        )


@pytest.fixture(scope="module")
def stack(secured: Secured, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("refused"), secured, redis_server)
    try:
        stack.start()
        yield stack
    finally:
        stack.app.stop()


def test_a_password_changes_at_the_broker_before_it_changes_on_disk(stack: Stack) -> None:
    new = "another one; ß €"
    before = stack.lines()
    with stack.flowing():
        stack.secured.set_password(USER, new)
        stack.secured.relay.cut()
        said = rf"refuse user '{USER}' \({MECHANISM}\): expected the password that they know.* in "
        stack.say(**{name: said + re.escape(str(stack.files[name])) for name in NAMES})
        stack.set_password(new)
        stack.well()
        # And back, in the better order: what is connected stays so, and the next connection has the right password.
        stack.secured.set_password(USER, PASSWORD)
        stack.set_password(PASSWORD)
        stack.well()
    # Each client tells an outage once, and each process what is behind it.
    told = {name: count - before[name] for name, count in stack.lines().items()}
    assert all(count <= MOST_LINES for count in told.values()), told


def test_an_authority_changes_and_with_it_the_certificates_of_broker_and_clients(stack: Stack) -> None:
    new = Authority.new("Next year's authority")
    with stack.flowing():
        stack.secured.change_authority(new)
        stack.secured.relay.cut()
        untrusted = rf"is not trusted .* expected one signed by those in {re.escape(str(stack.ca))}"
        stack.say(**dict.fromkeys(NAMES, untrusted))
        # One file after the other, as people copy them: the first alone is not enough.
        stack.ca.write_text(new.certificate)
        refused = rf"refuses the client's certificate {re.escape(str(stack.shown))}"
        stack.say(**dict.fromkeys(NAMES, refused))
        new.issue(USER).write(stack.shown)
        stack.well()


def test_a_broker_comes_back_with_a_certificate_that_has_expired(stack: Stack) -> None:
    stack.ca.write_text(stack.secured.ca.read_text() + stack.ca.read_text())
    stack.well()
    with stack.flowing():
        stack.secured.relay.lead(stack.secured.ports["EXPIRED"])
        stack.say(**dict.fromkeys(NAMES, r"the certificate of \S+ has expired: renew it on the broker"))
        stack.secured.relay.lead(stack.secured.ports["CHANGING"])
        stack.well()


def test_rights_on_topics_and_groups_are_taken_away_and_given_back(stack: Stack) -> None:
    app, only = stack.app, stack.secured.only
    prefix, lacks = f"tailrace.{app.app}", rf".*refuse user '{USER}' a right on a .*: allow"
    groups, commands = (f"{prefix}.materializer", f"{prefix}.{app.view}"), f"{prefix}.commands"
    with stack.flowing():
        with ExitStack() as taken:
            for group in groups:
                taken.enter_context(only("ada", ResourceType.GROUP, group))
            taken.enter_context(only("ada", ResourceType.TOPIC, commands))
            stack.say(materializer=rf"consumer group {groups[0]}: {lacks} Read on it")
            stack.say(materializer=rf"topic {commands}: {lacks} Read on it")
            stack.say(pipeline=rf"consumer group {groups[1]}: {lacks} Read on it")
            query = httpx.get(f"{app.url}/views/{app.view}/events?where=ratings%20%3E%201", timeout=30)
            assert query.status_code == 503, query.text
            # It is told that, and not as whom, and how, the gateway asks Kafka.
            assert USER not in query.json()["got"] and str(stack.ca.parent) not in query.text, query.text
            stack.say(gateway=rf"topic {commands}: {lacks} Write on it")
        stack.well()
        with ExitStack() as taken:
            for topic in (app.topic, app.view):
                taken.enter_context(only("ada", ResourceType.TOPIC, topic))
            stack.say(materializer=rf"topic {app.view}: {lacks} Read on it")
            stack.say(pipeline=rf"topic {app.topic}: {lacks} Describe on it")
        stack.well()
