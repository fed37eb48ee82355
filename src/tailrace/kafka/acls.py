"""Rights of a user on topics and consumer groups, and how brokers are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from tailrace.kafka.brokers import Brokers

READ = "Read"
WRITE = "Write"
CREATE = "Create"
DESCRIBE = "Describe"
DESCRIBE_CONFIGS = "DescribeConfigs"

TOPIC = "topic"
GROUP = "group"

LITERAL = "literal"
PREFIXED = "prefixed"

_TIMEOUT = 15.0
_OPERATIONS = {
    READ: AclOperation.READ,
    WRITE: AclOperation.WRITE,
    CREATE: AclOperation.CREATE,
    DESCRIBE: AclOperation.DESCRIBE,
    DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}


@dataclass(frozen=True)
class KafkaRight:
    """One operation on a topic or consumer group of this name, or on all whose names begin with it. `why` is for users.

    To Kafka, Read and Write each include Describe.
    """

    resource: str
    name: str
    operation: str
    why: str = ""
    pattern: str = LITERAL


def grant(brokers: Brokers, principal: str, rights: Sequence[KafkaRight]) -> None:
    """Give a principal, such as `User:movies-gateway`, some rights. Raises Unreachable if the brokers refuse that.

    Brokers may take a moment to act by them.
    """
    pending = brokers.admin().create_acls([binding(principal, right) for right in rights], request_timeout=_TIMEOUT)
    for future in pending.values():
        try:
            brokers.answer(future, _TIMEOUT + 5)
        except KafkaException as error:
            raise brokers.unreachable(error, f", rights of {principal}") from None


def binding(principal: str, right: KafkaRight) -> AclBinding:
    """A right of a principal, from any host, as Kafka's client writes it."""
    return AclBinding(
        ResourceType.TOPIC if right.resource == TOPIC else ResourceType.GROUP,
        right.name,
        ResourcePatternType.PREFIXED if right.pattern == PREFIXED else ResourcePatternType.LITERAL,
        principal,
        "*",
        _OPERATIONS[right.operation],
        AclPermissionType.ALLOW,
    )
