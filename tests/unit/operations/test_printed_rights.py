"""What `tailrace acls` prints: the same rights in every form."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from locked_kafka import granted
from tailrace.cli import main
from tailrace.declarations.loading import load_app
from tailrace.kafka.acls import KafkaRight
from tailrace.operations.kafka_rights import PROCESSES, kafka_rights
from tailrace.operations.redis_rights import redis_rights

EXAMPLE = Path(__file__).parents[3] / "examples" / "movies"
APP = "movies:app"


@pytest.fixture(autouse=True)
def in_example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    # Other tests have modules of this name, too.
    sys.modules.pop("movies", None)
    yield
    sys.modules.pop("movies", None)


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    capsys.readouterr()
    assert main(["acls", APP, *flags]) == 0
    return capsys.readouterr().out.splitlines()


def bare(rights: tuple[KafkaRight, ...]) -> set[KafkaRight]:
    return {KafkaRight(one.resource, one.name, one.operation, "", one.pattern) for one in rights}


def test_the_commands_for_kafka_acls_grant_each_process_its_rights(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--as", "kafka-acls", "--command-config", "admin.properties", "--kafka", "kafka:9092")
    start = "kafka-acls --bootstrap-server kafka:9092 --command-config admin.properties --add --allow-principal "
    assert all(line.startswith(start) for line in lines)
    found = [one for line in lines for one in granted(line)]
    app = load_app(APP)
    for process in PROCESSES:
        mine = [right for user, right in found if user == f"movies-{process}"]
        assert len(mine) == len(set(mine)) and set(mine) == bare(kafka_rights(app, process))


def test_the_commands_for_redis_give_each_user_its_rules(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--as", "redis", "--prefix", "cinema", "--redis", "redis+cluster://a:1,b:2")
    app = load_app(APP)
    assert lines == [
        " ".join(["ACL SETUSER", f"movies-{process}", "on", *redis_rights(app, process, prefix="cinema", cluster=True)])
        for process in ("materializer", "gateway", "operator")
    ]


def test_json_holds_both(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads("\n".join(printed(capsys, "--as", "json", "--for", "gateway")))
    app = load_app(APP)
    assert found["app"] == "movies" and list(found["processes"]) == ["gateway"]
    gateway = found["processes"]["gateway"]
    assert gateway["user"] == "movies-gateway" and gateway["redis"] == redis_rights(app, "gateway")
    assert tuple(KafkaRight(**one) for one in gateway["kafka"]) == kafka_rights(app, "gateway")


def test_the_table_says_what_each_right_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(printed(capsys))
    for process in PROCESSES:
        for right in kafka_rights(load_app(APP), process):
            (line,) = (
                line
                for line in text.splitlines()
                if line.split()[:5] == [process, right.resource, right.name, right.pattern, right.operation]
            )
            assert line.endswith(right.why)
    assert "ACL SETUSER movies-gateway on " in text


def test_users_are_named_as_they_are_told_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--as", "kafka-acls", "--for", "gateway", "--user", "CN={process}.{app},O=Movie Night")
    assert {user for line in lines for user, _ in granted(line)} == {"CN=gateway.movies,O=Movie Night"}


def test_sources_are_created_only_if_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert not [one for line in printed(capsys, "--as", "kafka-acls") for one in granted(line) if created(one[1])]
    told = printed(capsys, "--as", "kafka-acls", "--create-topics", "all")
    assert [user for line in told for user, right in granted(line) if created(right)] == ["movies-pipeline"]


def created(right: KafkaRight) -> bool:
    return right.name == "ratings" and right.operation == "Create"


@pytest.mark.parametrize(("flag", "value"), [("--for", "broker"), ("--as", "yaml")])
def test_a_flag_that_means_nothing_is_refused(capsys: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    assert main(["acls", APP, flag, value]) == 1
    assert f"{flag}: expected" in capsys.readouterr().err


def test_the_documented_rights_are_those_that_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    documented = (EXAMPLE.parents[1] / "docs" / "operations.md").read_text().splitlines()
    for process in PROCESSES:
        for one in kafka_rights(load_app(APP), process):
            row = (process, one.resource, f"`{one.name}`", one.pattern, one.operation, one.why)
            assert f"| {' | '.join(row)} |" in documented
    assert set(printed(capsys, "--as", "redis")) <= set(documented)
