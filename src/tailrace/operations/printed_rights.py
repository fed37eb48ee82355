"""The rights of an app's processes as `tailrace acls` prints them: for people, for shells, for redis-cli, for tools."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tailrace.kafka.acls import LITERAL, KafkaRight

TABLE, KAFKA, REDIS, JSON = "table", "kafka-acls", "redis", "json"
FORMS = (TABLE, KAFKA, REDIS, JSON)

_COLUMNS = ("process", "resource", "name", "pattern", "operation", "why")


@dataclass(frozen=True)
class ProcessRights:
    """What one process may do, and by which name Kafka and Redis know it.

    `kafka` are its rights there, `redis` the rules of its user for `ACL SETUSER`; none if it does not connect to it.
    """

    process: str
    user: str
    kafka: Sequence[KafkaRight]
    redis: Sequence[str]


def user_name(template: str, app: str, process: str) -> str:
    """The user of a process, from a text with `{app}` and `{process}`."""
    return template.replace("{app}", app).replace("{process}", process)


def kafka_table(found: Sequence[ProcessRights]) -> list[tuple[str, ...]]:
    """The header, and a row for each right."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for one in found:
        rows += [(one.process, r.resource, r.name, r.pattern, r.operation, r.why) for r in one.kafka]
    return rows


def kafka_commands(found: Sequence[ProcessRights], servers: str, config: str) -> Iterator[str]:
    """A line of shell for each topic or group of each process; `config` is the file for `--command-config`."""
    connect = ["kafka-acls", "--bootstrap-server", servers, *(["--command-config", config] if config else [])]
    for one in found:
        for (resource, name, pattern), operations in _by_resource(one.kafka).items():
            words = [*connect, "--add", "--allow-principal", f"User:{one.user}"]
            words += [word for operation in operations for word in ("--operation", operation)]
            words += [f"--{resource}", name]
            words += [] if pattern == LITERAL else ["--resource-pattern-type", pattern]
            yield shlex.join(words)


def redis_commands(found: Sequence[ProcessRights]) -> Iterator[str]:
    """A line for redis-cli for each process that connects to Redis. It leaves passwords as they are."""
    for one in found:
        if one.redis:
            yield " ".join(("ACL", "SETUSER", one.user, "on", *one.redis))


def as_json(app: str, found: Sequence[ProcessRights]) -> str:
    """All of it, by process."""
    processes = {
        one.process: {"user": one.user, "kafka": [asdict(right) for right in one.kafka], "redis": list(one.redis)}
        for one in found
    }
    return json.dumps({"app": app, "processes": processes}, indent=2, ensure_ascii=False)


def _by_resource(rights: Sequence[KafkaRight]) -> dict[tuple[str, str, str], list[str]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        found.setdefault((right.resource, right.name, right.pattern), []).append(right.operation)
    return found
