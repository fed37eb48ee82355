"""The entries that a file for Kafka's clients may have, and those that it may not, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

ADMIN, CONSUMER, PRODUCER = "admin", "consumer", "producer"
CLIENTS = (ADMIN, CONSUMER, PRODUCER)
_READ = (CONSUMER,)
_WRITE = (PRODUCER,)

WHOLE, SWITCH, TEXT = "a whole number", "true or false", "a text"


@dataclass(frozen=True)
class Passed:
    """An entry that clients take as it is. A client that has no name for it goes without.

    `kind` says what the value must be, or `choices` which values there are. `unit` divides the value for librdkafka.
    """

    java: str
    librdkafka: str
    clients: tuple[str, ...] = CLIENTS
    kind: str = WHOLE
    choices: tuple[str, ...] = ()
    unit: int = 1

    @property
    def names(self) -> frozenset[str]:
        """The names by which a file may call it."""
        return frozenset({self.java, self.librdkafka} - {""})


def _same(name: str, clients: tuple[str, ...] = CLIENTS, kind: str = WHOLE, choices: tuple[str, ...] = ()) -> Passed:
    return Passed(name, name, clients, kind, choices)


COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("all", "-1", "0", "1")
# Java's class names → librdkafka's names.
ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
ASSIGNOR = "partition.assignment.strategy"

PASSED = (
    _same("client.id", kind=TEXT),
    _same("client.rack", _READ, TEXT),
    _same("client.dns.lookup", kind=TEXT, choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    _same("connections.max.idle.ms"),
    _same("socket.connection.setup.timeout.ms"),
    Passed("socket.connection.setup.timeout.max.ms", ""),
    _same("reconnect.backoff.ms"),
    _same("reconnect.backoff.max.ms"),
    _same("retry.backoff.ms"),
    _same("retry.backoff.max.ms"),
    Passed("request.timeout.ms", "socket.timeout.ms"),
    Passed("default.api.timeout.ms", "", (ADMIN, CONSUMER)),
    Passed("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"),
    _same("metadata.recovery.strategy", kind=TEXT, choices=("none", "rebootstrap")),
    Passed("send.buffer.bytes", "socket.send.buffer.bytes"),
    Passed("receive.buffer.bytes", "socket.receive.buffer.bytes"),
    Passed("", "socket.keepalive.enable", kind=SWITCH),
    Passed("", "broker.address.family", kind=TEXT, choices=("any", "v4", "v6")),
    _same("enable.metrics.push", kind=SWITCH),
    _same("fetch.min.bytes", _READ),
    Passed("fetch.max.wait.ms", "fetch.wait.max.ms", _READ),
    _same("fetch.max.bytes", _READ),
    _same("max.partition.fetch.bytes", _READ),
    Passed("max.poll.records", "", _READ),
    Passed("", "queued.max.messages.kbytes", _READ),
    _same("check.crcs", _READ, SWITCH),
    _same("session.timeout.ms", _READ),
    _same("heartbeat.interval.ms", _READ),
    _same("max.poll.interval.ms", _READ),
    Passed("", ASSIGNOR, _READ, TEXT, tuple(ASSIGNORS.values())),
    _same("acks", _WRITE, TEXT, ACKS),
    _same("linger.ms", _WRITE),
    _same("batch.size", _WRITE),
    Passed("buffer.memory", "queue.buffering.max.kbytes", _WRITE, unit=1024),
    _same("compression.type", _WRITE, TEXT, COMPRESSIONS),
    Passed("", "compression.level", _WRITE),
    *(Passed(f"compression.{one}.level", "", _WRITE) for one in ("gzip", "lz4", "zstd")),
    _same("max.in.flight.requests.per.connection", _WRITE),
    _same("delivery.timeout.ms", _WRITE),
    Passed("max.block.ms", "", _WRITE),
    _same("retries", _WRITE),
)

# Other names that librdkafka has for some of them.
ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "message.timeout.ms": "delivery.timeout.ms",
    "request.required.acks": "acks",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

_GROUPS = "each process has its consumer group, by which lag tools find it"
_POSITIONS = "positions are kept in Spark's checkpoints and in Redis; offsets are committed for lag tools alone"
_BYTES = "records are written and read as bytes"
_PARTITION = "a key's partition is found by Kafka's own rule, also by readers of the changelog"
_LENGTHS = "the length of records is what their topic takes (`max.message.bytes`)"
_TRANSACTIONS = "records carry versions, which make a repetition harmless without transactions"

FIXED = {
    "group.id": _GROUPS,
    "group.instance.id": _GROUPS,
    "group.protocol": _GROUPS,
    "group.remote.assignor": _GROUPS,
    "enable.auto.commit": _POSITIONS,
    "auto.commit.interval.ms": _POSITIONS,
    "enable.auto.offset.store": _POSITIONS,
    "auto.offset.reset": _POSITIONS,
    "isolation.level": "a record of a transaction that was aborted must not reach a view: it is `read_committed`",
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "partitioner": _PARTITION,
    "partitioner.class": _PARTITION,
    "partitioner.ignore.keys": _PARTITION,
    "max.request.size": _LENGTHS,
    "message.max.bytes": _LENGTHS,
    "receive.message.max.bytes": _LENGTHS,
    "enable.idempotence": "a retry must not write a record twice, or out of order: it is on unless `acks` is 0 or 1",
    "transactional.id": _TRANSACTIONS,
    "transaction.timeout.ms": _TRANSACTIONS,
    "allow.auto.create.topics": "the pipeline creates topics, with the settings that they need",
    "interceptor.classes": "nothing may change a record on its way",
    "enable.ssl.certificate.verification": "a connection whose other end nobody checks is open to everyone",
    "ssl.engine.factory.class": "certificates come from the files that this file names",
    "ssl.cipher.suites": "the two clients have different names for them; both take TLS 1.2 and 1.3 alone",
    "ssl.protocol": "both clients take TLS 1.2 and 1.3 alone",
    "ssl.enabled.protocols": "both clients take TLS 1.2 and 1.3 alone",
    "config.providers": "secrets may be in files and variables of their own: see docs/security.md",
}
