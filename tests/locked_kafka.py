"""A broker at which nobody may do anything without a right, and a user for each process of an app."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from pathlib import Path

from confluent_kafka.admin import AclBindingFilter, AclPermissionType, AdminClient

from running import eventually
from secured_kafka import write_properties
from services import Services
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.kafka.acls import GROUP, LITERAL, TOPIC, KafkaRight, binding
from tailrace.kafka.brokers import Brokers
from tailrace.operations.kafka_rights import PROCESSES
from tailrace.settings import Settings

_PASSWORD = "secret"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class LockedKafka:
    """Users are named as processes are. At the broker's own port everybody may do everything: tests prepare by it."""

    def __init__(self, directory: Path, services: Services) -> None:
        self._directory = directory
        port, controller, locked = free_port(), free_port(), free_port()
        self.locked = f"{LOOPBACK}:{locked}"
        listeners = {"PLAINTEXT": port, "LOCKED": locked}
        addresses = [f"{name}://{LOOPBACK}:{number}" for name, number in listeners.items()]
        users = " ".join(f'user_{process}="{_PASSWORD}"' for process in PROCESSES)
        properties = {
            "listeners": ",".join([*addresses, f"CONTROLLER://{LOOPBACK}:{controller}"]),
            "advertised.listeners": ",".join(addresses),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOCKED:SASL_PLAINTEXT",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.locked.plain.sasl.jaas.config": f"{_LOGIN} {users};",
        }
        self.broker = services.broker(port=port, properties=properties)
        self.admin = AdminClient({"bootstrap.servers": self.broker.address})

    def file(self, process: str) -> Path:
        """The file for `--kafka-config` of a process."""
        file = self._directory / f"{process}.properties"
        entries = {
            "bootstrap.servers": self.locked,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{_LOGIN} username="{process}" password="{_PASSWORD}";',
        }
        write_properties(file, entries)
        return file

    def settings(self, process: str) -> Settings:
        return Settings({"kafka-config": str(self.file(process))}, frozenset({"kafka-config"}))

    def brokers(self, process: str) -> Brokers:
        """The brokers as a process connects to them."""
        return Brokers.of(self.settings(process))

    def give(self, process: str, right: KafkaRight) -> None:
        for pending in self.admin.create_acls([binding(f"User:{process}", right)]).values():
            pending.result(30)
        eventually(lambda: self._has(process, right), "the broker knows the right", 30)

    def take(self, process: str, right: KafkaRight) -> None:
        for pending in self.admin.delete_acls([_filter(process, right)]).values():
            assert len(pending.result(30)) == 1, right
        eventually(lambda: not self._has(process, right), "the broker has forgotten the right", 30)

    def _has(self, process: str, right: KafkaRight) -> bool:
        return bool(self.admin.describe_acls(_filter(process, right)).result(30))


def _filter(process: str, right: KafkaRight) -> AclBindingFilter:
    one = binding(f"User:{process}", right)
    return AclBindingFilter(
        one.restype,
        one.name,
        one.resource_pattern_type,
        one.principal,
        one.host,
        one.operation,
        AclPermissionType.ALLOW,
    )


def granted(line: str) -> list[tuple[str, KafkaRight]]:
    """The users and rights of a command of `kafka-acls`, read as Kafka's own tool reads it."""
    parser = ArgumentParser(allow_abbrev=False)
    for name in ("--bootstrap-server", "--command-config"):
        parser.add_argument(name, required=name == "--bootstrap-server")
    parser.add_argument("--add", action="store_true", required=True)
    for name in ("--allow-principal", "--operation", "--topic", "--group"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--resource-pattern-type", default=LITERAL)
    tool, *arguments = shlex.split(line)
    assert tool == "kafka-acls"
    flags = parser.parse_args(arguments)
    resources = [(TOPIC, name) for name in flags.topic] + [(GROUP, name) for name in flags.group]
    return [
        (principal.removeprefix("User:"), KafkaRight(resource, name, operation, "", flags.resource_pattern_type))
        for principal in flags.allow_principal
        for resource, name in resources
        for operation in flags.operation
    ]
