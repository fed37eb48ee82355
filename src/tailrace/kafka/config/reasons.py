"""Why Kafka refuses a connection, in words that name what to correct."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from confluent_kafka import KafkaError

from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.security import OAUTHBEARER, PLAINTEXT, SSL, Security

# What librdkafka puts around a message: the broker before, the state after.
_BEFORE = re.compile(r"^(?:\w+://)?[\w.\-:\[\]]+/\S+: ")
_AFTER = re.compile(r" \(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)$")

# What is said if a right is missing, by the code of the error.
RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}

# What to do if a topic may not even be looked up.
ALLOW_DESCRIBE = "allow Describe on it, which Read and Write include"

# The same by the name of Java's exception, and what else it says of a refusal.
_OF_JAVA = {
    "SaslAuthenticationException": KafkaError.SASL_AUTHENTICATION_FAILED,
    "SslAuthenticationException": KafkaError._SSL,
    "TopicAuthorizationException": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "GroupAuthorizationException": KafkaError.GROUP_AUTHORIZATION_FAILED,
    "ClusterAuthorizationException": KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    "TransactionalIdAuthorizationException": KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)(?:: ([^\n]*))?")


def refused_in(text: str) -> KafkaError | None:
    """What Kafka has refused, if that is why a program in Java failed with this text; None otherwise."""
    for name, said in _EXCEPTION.findall(text):
        if name in _OF_JAVA:
            return KafkaError(_OF_JAVA[name], said.strip())
    return None


def reason(code: int, text: str, config: KafkaConfig) -> str:
    """What an error of librdkafka means."""
    said, security = bare(text), config.security
    where = f" in {config.files[0]}" if config.files else ""
    if code == KafkaError._SSL:
        return f"TLS failed: {said}"
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED) and security.mechanism:
        if "not valid in current SASL state" in said:
            wanted = SSL if security.encrypted else PLAINTEXT
            return (
                f"the brokers want no password at this address: expected security.protocol={wanted}, or another port, "
                f"got {security.protocol}{where}"
            )
        if security.mechanism == OAUTHBEARER:
            return f"{OAUTHBEARER} failed: {said}: see the client id, its secret and the token endpoint{where}"
        if "mechanism" in said and "supported" in said.lower():
            return f"the brokers do not take {security.mechanism}: {said}: correct sasl.mechanism{where}"
        return (
            f"the brokers refuse user {security.user!r} ({security.mechanism}): expected the password that they know, "
            f"got another one: correct it{where or ' '}, TAILRACE_KAFKA_SASL_PASSWORD or its file, or the user"
        )
    if code in RIGHTS:
        return f"the brokers refuse user {user(security)} a right on a {RIGHTS[code]}: {said}"
    return said


def how(config: KafkaConfig) -> str:
    """How a process connects, for an error about that."""
    return f"it connects as {config.files[0]} says" if config.files else "it connects without --kafka-config"


def user(security: Security) -> str:
    """Who this process is to the brokers, as far as it knows."""
    if security.oauth is not None:
        return f"{security.oauth.client!r}"
    if security.mechanism:
        return f"{security.user!r}"
    return f"{security.identity.name!r}" if security.identity is not None else "'ANONYMOUS'"


def bare(text: str) -> str:
    """A message of librdkafka without the state of the connection."""
    return _AFTER.sub("", _BEFORE.sub("", text))


def expired(security: Security) -> str | None:
    """What to say if the client's own certificate has expired; None if it has not."""
    shown = security.identity
    if shown is None or datetime.now(UTC) <= shown.expires:
        return None
    return f"the client's certificate {security.shown_in} ({shown.name}) expired on {shown.expires:%Y-%m-%d %H:%M} UTC"
