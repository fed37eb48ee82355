"""Users of brokers: the password that each logs in with (SCRAM), and what it may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tailrace.kafka.acls import KafkaRight, grant
from tailrace.kafka.brokers import Brokers

MECHANISM = "SCRAM-SHA-512"

_TIMEOUT = 15.0
# The least that brokers take. More would make a stolen password file harder to use; these passwords can't be guessed.
_ITERATIONS = 4096


@dataclass(frozen=True)
class KafkaUser:
    """A user, as which one process connects."""

    name: str
    password: str = field(repr=False)
    rights: Sequence[KafkaRight] = ()

    @property
    def principal(self) -> str:
        """The user as ACLs name it."""
        return f"User:{self.name}"


def admit(brokers: Brokers, users: Sequence[KafkaUser]) -> None:
    """Let users log in with these passwords and no others, and do this and nothing else.

    Raises Unreachable if the brokers refuse that. Brokers may take a moment to act by it.
    """
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    asked: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user.name, info, user.password.encode()) for user in users
    ]
    altered = brokers.admin().alter_user_scram_credentials(asked, request_timeout=_TIMEOUT)
    removed = brokers.admin().delete_acls([_all_of(user) for user in users], request_timeout=_TIMEOUT)
    for pending in (*altered.values(), *removed.values()):
        try:
            brokers.answer(pending, _TIMEOUT + 5)
        except KafkaException as error:
            raise brokers.unreachable(error, f", users {', '.join(user.name for user in users)}") from None
    for user in users:
        if user.rights:
            grant(brokers, user.principal, user.rights)


def _all_of(user: KafkaUser) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        user.principal,
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
