"""The whole stack under exactly the rights that `tailrace acls` prints, and what is said without one of them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import redis

from locked_kafka import LockedKafka, granted
from operating import Operator
from oracle import read_topic
from running import PATIENCE, Tailrace, eventually
from services import Services
from sse import Follower
from tailrace.contracts.catalog import PROGRESS_RECORDS, catalog_topic
from tailrace.contracts.commands import commands_topic
from tailrace.contracts.record import Change
from tailrace.declarations.app import App
from tailrace.errors import TailraceError, Unreachable
from tailrace.kafka.acls import CREATE, PREFIXED, TOPIC, WRITE, KafkaRight
from tailrace.kafka.additions import Additions
from tailrace.kafka.async_delivery import AsyncDelivery, Unwritten, Written
from tailrace.kafka.async_writer import AsyncWriter
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogReader, CatalogWriter, read_records
from tailrace.kafka.changelogs import Changelogs
from tailrace.kafka.commands_topic import CommandsReader
from tailrace.kafka.dead_letters import DeadLetter, DeadLetters, dead_letter_topic
from tailrace.kafka.delivery import Outgoing
from tailrace.kafka.ends import Ends
from tailrace.kafka.generations import highest_generation
from tailrace.kafka.groups import Group
from tailrace.kafka.topics import Topics
from tailrace.operations.kafka_rights import GATEWAY, MATERIALIZER, OPERATOR, PIPELINE, kafka_rights
from tailrace.operations.rebuild import execute, plan
from tailrace.operations.resets import Target
from tailrace.operations.status import status
from tailrace.pipeline.run import create_topics, find_sources
from tailrace.settings import Settings

# Names are of this module alone, so that a test has the name of each right.
FRESH = "least-rights"
APP, RATINGS, AVERAGES, BEST, NOTES = (f"{name}-{FRESH}" for name in ("movies", "ratings", "averages", "best", "notes"))
SECRET = "secret"
MODULE = f"""
from tailrace import App

app = App("{APP}")
ratings = app.topic("{RATINGS}", value="movie_id long, rating double", accept=True)
averages = app.view(
    "{AVERAGES}", ratings.where("rating > 0"), key="movie_id",
    columns={{"rating": "avg(rating)", "ratings": "count(*)"}},
)
app.latest("{BEST}", averages.where("rating >= 8"))
app.feed("{NOTES}", ratings, key="movie_id", columns={{"rating": "rating"}})
"""
# How a process says that it may not do something.
REFUSED = ("uthoriz", "refuse", "NOPERM", "may not be read")


def declared() -> App:
    scope: dict[str, App] = {}
    exec(MODULE, scope)  # noqa: S102
    return scope["app"]


DECLARED = declared()
ALIKE = pytest.mark.campaign("the ordinary run takes away one right of each kind")


def every_right() -> Iterator[object]:
    """Each right of each process; those of a kind that came before are for the campaign."""
    seen = set[tuple[str, str, str]]()
    for process in (PIPELINE, MATERIALIZER, GATEWAY, OPERATOR):
        for right in kafka_rights(DECLARED, process):
            kind = (process, right.operation, right.resource)
            name = "-".join((process, right.operation, right.resource, right.name))
            yield pytest.param(process, right, id=name, marks=ALIKE if kind in seen else ())
            seen.add(kind)


class Locked(Tailrace):
    """The processes of the app, each with its own user at Kafka and Redis."""

    def __init__(self, directory: Path, services: Services) -> None:
        self.kafka = LockedKafka(directory, services)
        super().__init__(directory / "app", self.kafka.broker, services.redis(), FRESH, MODULE)
        for line in self.printed("kafka-acls"):
            for process, right in granted(line):
                self.kafka.give(process, right)
        client = redis.Redis.from_url(self.redis.url)
        for line in self.printed("redis"):
            client.execute_command(*line.split())  # type: ignore[no-untyped-call]
            client.execute_command("ACL", "SETUSER", line.split()[2], f">{SECRET}")  # type: ignore[no-untyped-call]
        client.execute_command("ACL", "SETUSER", "default", "off")  # type: ignore[no-untyped-call]
        client.close()
        Operator(self.broker).create(RATINGS, 2)

    def printed(self, form: str) -> list[str]:
        """What `tailrace acls` prints."""
        return self.command("acls", "movies:app", "--as", form, "--user", "{process}").splitlines()

    def command(self, *arguments: str) -> str:
        """What a command prints; it must succeed."""
        line = [sys.executable, "-m", "tailrace", *arguments]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=self.directory)
        assert done.returncode == 0, done.stderr
        assert not refusals(done.stderr)
        return done.stdout

    def connects(self, process: str) -> tuple[str, ...]:
        """The flags by which a process connects to Kafka and Redis."""
        return "--kafka-config", str(self.kafka.file(process)), "--redis", self.redis_url(process)

    def redis_url(self, process: str) -> str:
        return self.redis.url.replace("redis://", f"redis://{process}:{SECRET}@")

    def start_everything(self) -> None:
        for process in (PIPELINE, MATERIALIZER, GATEWAY):
            self.kafka_config = self.kafka.file(process)
            if process == PIPELINE:
                self.start_pipeline("--create-topics", "changelogs")
            elif process == MATERIALIZER:
                self.start_materializer("--redis", self.redis_url(process))
            else:
                self.start_gateway("--redis", self.redis_url(process))
        for process in (PIPELINE, MATERIALIZER, GATEWAY):
            self.wait_ready(process)

    def log_of(self, process: str) -> str:
        return (self.directory / f"{process}.log").read_text()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    services = Services(tmp_path_factory.mktemp("locked-services"))
    app = Locked(tmp_path_factory.mktemp("locked"), services)
    app.start_everything()
    # Every changelog gets some record.
    app.rate((number, 9) for number in range(100, 120))
    yield app
    app.stop()
    services.stop()


def refusals(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(word in line for word in REFUSED)]


def test_the_whole_stack_does_all_it_can_with_exactly_the_printed_rights(locked: Locked) -> None:
    """One journey, because Spark takes seconds to start: each block is a promise of its own."""
    events = f"{locked.url}/topics/{RATINGS}/events"
    written = httpx.post(events, json=[{"movie_id": 362, "rating": 9}, {"movie_id": 7, "rating": 2}], timeout=30)
    assert written.status_code == 202, written.text
    feed = Follower(f"{locked.url}/feeds/{NOTES}/5/events")
    query = Follower(f"{locked.url}/views/{AVERAGES}/events?where=rating%20%3E%208")
    eventually(lambda: locked.row(362, BEST) is not None, "the row of a view over a view")
    feed.wait(lambda one: any(frame.event == "ready" for frame in one.frames))
    locked.rate([(5, 8.5)])
    feed.wait(lambda one: one.events == [{"movie_id": 5, "rating": 8.5}])
    query.wait(lambda one: {row["movie_id"] for row in one.rows} >= {5, 362})

    # A client waits for what the view makes of its event.
    (last,) = httpx.post(events, json=[{"movie_id": 362, "rating": 10}], timeout=30).json()["records"]
    waiting = {"at_least": f"{RATINGS}:{last['partition']}:{last['offset']}"}
    found = httpx.get(locked.row_url(362, AVERAGES), params=waiting, headers={"Prefer": "wait=60"}, timeout=90)
    assert found.json()["ratings"] == 2

    # What can't be used is a dead letter.
    locked.produce(b"no JSON")
    letters = dead_letter_topic(RATINGS)
    eventually(lambda: len(read_topic(locked.broker.address, letters)) == 1, "the dead letter")

    # What an operator does.
    def operate(*arguments: str) -> str:
        return locked.command(*arguments, "--kafka-config", str(locked.kafka.file(OPERATOR)))

    operates = ("--redis", locked.redis_url(OPERATOR))
    seen = json.loads(operate("status", APP, "--json", *operates))
    assert {view["view"] for view in seen["views"]} == {AVERAGES, BEST, NOTES}
    assert all(view["store_behind"] is not None for view in seen["views"])
    assert "builds nothing anew" in operate("check", "movies:app", "--kafka", locked.kafka.locked)
    operate("rebuild", APP, AVERAGES, "--execute")
    eventually(lambda: generation(operate("status", APP, "--json", *operates)) == 2, "the view is built anew")
    operate("reset", APP, NOTES, "--to-latest", "--execute")
    locked.command("revoke", APP, "--sub", "ada", *operates)
    feed.close()
    query.close()
    for process in (PIPELINE, MATERIALIZER, GATEWAY):
        locked.wait_ready(process)
        assert not refusals(locked.log_of(process)), process


def generation(status: str) -> int:
    return next(int(view["generation"]) for view in json.loads(status)["views"] if view["view"] == AVERAGES)


@pytest.mark.parametrize(("process", "right"), list(every_right()))
def test_without_a_right_an_error_names_it(
    locked: Locked, process: str, right: KafkaRight, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = locked.kafka.brokers(process)
    locked.kafka.take(process, right)
    said: list[str] = []
    try:
        for use in uses(process, right, brokers, locked):
            try:
                use()
            except TailraceError as error:
                said.append(str(error))
            said += [*brokers.problems(), *refusals(caplog.text)]
            if named(right, said):
                return
    finally:
        locked.kafka.give(process, right)
    pytest.fail(f"nothing names {right.operation} on {right.resource} {right.name}: {said}")


def test_a_gateway_that_may_write_nowhere_tells_its_clients_that(locked: Locked) -> None:
    """Its producer fails for good, because it can't even be idempotent."""
    rights = [right for right in kafka_rights(DECLARED, GATEWAY) if right.operation == WRITE]
    brokers = locked.kafka.brokers(GATEWAY)
    for right in rights:
        locked.kafka.take(GATEWAY, right)
    try:
        (found,) = asyncio.run(write_event(brokers))
        assert isinstance(found, Unwritten)
        eventually(lambda: named(KafkaRight(TOPIC, RATINGS, WRITE), brokers.problems()), "health names the right", 30)
    finally:
        for right in rights:
            locked.kafka.give(GATEWAY, right)
    assert isinstance(asyncio.run(write_event(brokers))[0], Written)


def named(right: KafkaRight, said: Sequence[str]) -> bool:
    """Whether a line has the operation, and the name as a whole or, if that is a prefix, as a beginning."""
    name = rf"(?<![\w.-]){re.escape(right.name)}" + ("" if right.pattern == PREFIXED else r"(?![\w-]|\.\w)")
    return any(re.search(name, line) and re.search(rf"\b{right.operation}\b", line) for line in said)


def uses(process: str, right: KafkaRight, brokers: Brokers, locked: Locked) -> list[Callable[[], object]]:
    """What a process does with its rights, by its own functions."""
    topics = Topics(brokers)
    catalog, outputs = catalog_topic(APP), [AVERAGES, BEST, NOTES]
    # It is there already, but a broker looks at the right first.
    created = [right.name] if right.operation == CREATE else []
    if process == PIPELINE:
        settings = Settings({})
        return [
            lambda: each(created, lambda name: topics.create(name, partitions=1, replication=1, config={})),
            lambda: topics.lengths([RATINGS]),
            lambda: find_sources(DECLARED, topics, brokers, settings),
            lambda: create_topics(DECLARED, topics, settings),
            lambda: topics.longest(dead_letter_topic(RATINGS)),
            lambda: read_records(brokers, APP, topics),
            lambda: put(CatalogWriter(brokers, catalog)),
            lambda: [highest_generation(brokers, name, 2, f"tailrace.{APP}.generations") for name in outputs],
            lambda: commit(Group(brokers, f"tailrace.{APP}.{AVERAGES}")),
            lambda: computes(locked, right),
        ]
    if process == MATERIALIZER:
        return [
            lambda: each(created, lambda name: topics.create(name, partitions=1, replication=1, config={})),
            lambda: CatalogReader(brokers, catalog).read_whole(),
            lambda: CommandsReader(brokers, APP).read_whole(),
            lambda: [Changelogs(brokers, f"tailrace.{APP}.other").tombstones_kept(name) for name in (AVERAGES, BEST)],
            lambda: each(outputs[:2], lambda name: Additions(brokers).write([((name, 0), CHANGE)])),
            lambda: each(outputs, lambda name: DeadLetters(brokers).write([letter(name)])),
            lambda: follow(brokers, outputs),
        ]
    if process == GATEWAY:
        return [
            lambda: CommandsReader(brokers, APP).read_whole(),
            lambda: asyncio.run(AsyncWriter(brokers, commands_topic(APP), "commands").put("s", None)),
            lambda: asyncio.run(write_event(brokers)),
            lambda: [Ends(brokers, f"tailrace.{APP}.gateway").end(name, 0) for name in (AVERAGES, BEST)],
        ]
    values = {"kafka-config": str(locked.kafka.file(OPERATOR)), "redis": locked.redis_url(OPERATOR)}
    settings = Settings(values, frozenset({"kafka-config"}))
    return [
        lambda: status(APP, settings),
        lambda: ages(Group(brokers, f"tailrace.{APP}.status"), outputs),
        lambda: execute(APP, plan(APP, NOTES, Target("latest"), settings), settings),
    ]


def each(names: Sequence[str], use: Callable[[str], object]) -> None:
    for name in names:
        use(name)


CHANGE = Change(b"1", None, 1, 1, 0, 0)


def letter(name: str) -> DeadLetter:
    return DeadLetter(name, 0, 0, 0, None, b"x", [], "a test", name)


def ages(group: Group, topics: Sequence[str]) -> None:
    """What `status` asks if the store is behind: how old the first record is that waits."""
    try:
        for topic, partitions in group.bounds(dict.fromkeys(topics, 2)).items():
            for number, (first, end) in partitions.items():
                assert first == end or group.age(topic, number, first, time.time()) is not None
    finally:
        group.close()


def put(writer: CatalogWriter) -> None:
    """Write what was there before: how far a view is that does not exist."""
    writer.put(f"{PROGRESS_RECORDS}none", None)
    writer.flush()


def commit(group: Group) -> None:
    try:
        group.commit({RATINGS: {0: 0}})
    finally:
        group.close()


async def write_event(brokers: Brokers) -> list[Written | Unwritten]:
    delivery = AsyncDelivery(brokers, "events in")
    try:
        return await delivery.write([Outgoing(RATINGS, 0, None, b'{"movie_id": 1, "rating": 1}', [])])
    finally:
        await asyncio.to_thread(delivery.close)


def follow(brokers: Brokers, topics: Sequence[str]) -> None:
    """Share the partitions of changelogs until a record of each has come, or something is refused."""
    changelogs = Changelogs(brokers, f"tailrace.{APP}.materializer")
    changelogs.subscribe(topics)
    missing, deadline = set(topics), time.monotonic() + 60
    while missing and not brokers.problems():
        assert time.monotonic() < deadline, missing
        polled = changelogs.poll(0.1)
        for partition in polled.assigned:
            changelogs.open(partition, 0)
        missing -= {topic for topic, _ in polled.records}
    changelogs.close()


def computes(locked: Locked, right: KafkaRight) -> None:
    """See that the running pipeline says what it lacks, and goes on when it has it again."""
    raise Unreachable("; ".join(reasons(locked, right)))


def reasons(locked: Locked, right: KafkaRight) -> list[str]:
    # Something to write, and something to skip.
    locked.rate([(1, 9)])
    locked.produce(b"no JSON")
    eventually(lambda: named(right, locked.health(PIPELINE)["reasons"]), "health names the right")
    found: list[str] = locked.health(PIPELINE)["reasons"]
    return found
