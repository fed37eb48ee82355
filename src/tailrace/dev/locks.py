"""What locks `tailrace dev --secure`: an authority, certificates, users and passwords, a secret for tokens.

Everything is in a directory that only its owner may enter. Authority, passwords and secret stay from run to run, so
that clients go on with what they have; certificates are issued at each start, so that none ends while it is in use.

    ca.pem, ca.key                  the authority, which whoever connects has to trust
    kafka.pem, admin.pem            certificates with their keys: of the broker, and of the user that may do everything
    redis.pem, redis.key            of Redis
    gateway.pem, gateway.key        of the gateway
    jwt.key                         the secret that signs tokens
    <user>.properties               how a user connects to Kafka; Kafka's own tools take it, too
    <user>.kafka-password, <user>.redis-password
    redis.acl                       the users of Redis
    operator.env, producer.env      variables for a shell
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.access.issuing import ALGORITHM, Issuer
from tailrace.declarations.app import App
from tailrace.dev.broker import Broker, BrokerLocks
from tailrace.dev.certificates import LOCAL, Authority, write_secret
from tailrace.dev.redis_server import RedisLocks, RedisServer
from tailrace.kafka.acls import TOPIC, WRITE, KafkaRight
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.config.jaas import SCRAM, Jaas, write_jaas
from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.security import Secrets
from tailrace.kafka.users import MECHANISM, KafkaUser, admit
from tailrace.operations.kafka_rights import GATEWAY, OPERATOR, PIPELINE, PROCESSES, kafka_rights
from tailrace.operations.redis_rights import redis_rights
from tailrace.store.connection.address import with_passwords

# Whoever writes to source topics: the commands of `--also`, and programs of yours.
PRODUCER = "producer"
# May do everything. `tailrace dev` is that user; nobody else needs to be.
ADMIN = "admin"
_BROKER = "kafka"
_KAFKA_USERS = (*PROCESSES, PRODUCER)
_REDIS_USERS = tuple(process for process in PROCESSES if process != PIPELINE)
_PRIVATE = 0o700
_SECRET_BYTES = 32


class Locks:
    """The locks of an app.

    prefix: of keys in Redis, as for `--prefix`. hosts: names and addresses that clients use for the gateway, besides
    those of this machine.
    """

    def __init__(self, directory: Path, app: App, *, prefix: str = "", hosts: Sequence[str] = ()) -> None:
        self.directory = directory.absolute()
        self.directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        self.directory.chmod(_PRIVATE)
        self.servers = ""
        self._app = app
        self._variables: dict[str, dict[str, str]] = {user: {} for user in _KAFKA_USERS}
        authority = Authority.kept(self.directory)
        for name in (_BROKER, ADMIN):
            authority.issue(name).write(self._file(f"{name}.pem"))
        for name, names in (("redis", LOCAL), ("gateway", (*LOCAL, socket.gethostname(), *hosts))):
            authority.issue(name, list(dict.fromkeys(names))).write(
                self._file(f"{name}.pem"), self._file(f"{name}.key")
            )
        self.jwt_key = self._file("jwt.key")
        self.issuer = Issuer(self._secret(self.jwt_key.name).encode())
        self.broker = BrokerLocks(
            authority=self.authority,
            identity=self._file("kafka.pem"),
            administrator=self._file("admin.pem"),
            broker_name=_BROKER,
            administrator_name=ADMIN,
        )
        self.redis = RedisLocks(
            users=self._write_redis_users(prefix),
            authority=self.authority,
            certificate=self._file("redis.pem"),
            key=self._file("redis.key"),
            user=ADMIN,
            password=self._redis_password(ADMIN),
        )

    @property
    def authority(self) -> Path:
        """The certificate of the authority."""
        return self._file("ca.pem")

    @property
    def gateway_certificate(self) -> tuple[Path, Path]:
        """The certificate of the gateway, and its key."""
        return self._file("gateway.pem"), self._file("gateway.key")

    def let_in(self, broker: Broker, redis: RedisServer) -> None:
        """Let users in at a broker and a Redis that have started with these locks. Raises Unreachable."""
        admin = {
            "bootstrap.servers": broker.admin_address,
            "security.protocol": "SSL",
            **self._trust(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker.administrator),
        }
        self.servers = broker.address
        file = self._write_properties(ADMIN, admin)
        admit(Brokers(broker.admin_address, KafkaConfig.read(str(file), Secrets())), [*self._kafka_users()])
        for user in _KAFKA_USERS:
            file = self._write_properties(user, self._connects(user, broker.address))
            self._variables[user] |= {"TAILRACE_KAFKA": broker.address, "TAILRACE_KAFKA_CONFIG": str(file)}
        for user in _REDIS_USERS:
            password = self._file(f"{user}.redis-password")
            self._variables[user] |= {
                "TAILRACE_REDIS": redis.url_of(user),
                "TAILRACE_REDIS_PASSWORD_FILE": str(password),
            }
        certificate, key = self.gateway_certificate
        self._variables[GATEWAY] |= {
            "TAILRACE_TLS_CERT": str(certificate),
            "TAILRACE_TLS_KEY": str(key),
            "TAILRACE_ACCESS": "jwt",
            "TAILRACE_JWT_ALGORITHM": ALGORITHM,
            "TAILRACE_JWT_KEY": str(self.jwt_key),
        }
        for user in (OPERATOR, PRODUCER):
            lines = [f"export {name}={shlex.quote(value)}\n" for name, value in self._variables[user].items()]
            write_secret(self.shell_file(user), "".join(lines))

    def variables(self, user: str) -> dict[str, str]:
        """What a process needs in its environment to connect as a user, after `let_in`. None of them is secret."""
        return self._variables[user]

    def kafka_config(self, user: str) -> Path:
        """The file with how a user connects to Kafka."""
        return self._file(f"{user}.properties")

    def shell_file(self, user: str) -> Path:
        """The file that gives a shell the variables of the operator, or of the producer."""
        return self._file(f"{user}.env")

    def admin_url(self, redis: RedisServer) -> str:
        """The URL of Redis with the password of the user that may do everything."""
        return with_passwords(redis.url_of(ADMIN), self._redis_password(ADMIN), None)

    def _kafka_users(self) -> list[KafkaUser]:
        rights = {process: kafka_rights(self._app, process, create_sources=True) for process in PROCESSES}
        written = [KafkaRight(TOPIC, name, WRITE, "writes events") for name in self._app.source_topics]
        return [
            *(KafkaUser(process, self._kafka_password(process), rights[process]) for process in PROCESSES),
            KafkaUser(PRODUCER, self._kafka_password(PRODUCER), written),
        ]

    def _write_redis_users(self, prefix: str) -> Path:
        rules = {user: redis_rights(self._app, user, prefix=prefix) for user in _REDIS_USERS}
        rules[ADMIN] = ["~*", "&*", "+@all"]
        lines = ["user default off\n"]
        for user, allowed in rules.items():
            digest = hashlib.sha256(self._redis_password(user).encode()).hexdigest()
            lines.append(f"user {user} on #{digest} {' '.join(allowed)}\n")
        file = self._file("redis.acl")
        write_secret(file, "".join(lines))
        return file

    def _connects(self, user: str, servers: str) -> dict[str, str]:
        """How a user connects to Kafka: in Java's names, or in librdkafka's for programs of yours in Python."""
        password = self._kafka_password(user)
        found = {"bootstrap.servers": servers, "security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM}
        if user == PRODUCER:
            login = {"sasl.username": user, "sasl.password": password}
            return found | login | {"ssl.ca.location": str(self.authority)}
        login = {"sasl.jaas.config": write_jaas(Jaas(SCRAM, {"username": user, "password": password}))}
        return found | login | self._trust()

    def _trust(self) -> dict[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}

    def _write_properties(self, user: str, entries: Mapping[str, str]) -> Path:
        file = self.kafka_config(user)
        # A backslash would start an escape.
        write_secret(file, "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in entries.items()))
        return file

    def _kafka_password(self, user: str) -> str:
        return self._secret(f"{user}.kafka-password")

    def _redis_password(self, user: str) -> str:
        return self._secret(f"{user}.redis-password")

    def _secret(self, name: str) -> str:
        """The secret in a file; a new one if there is none."""
        file = self._file(name)
        if not file.exists():
            write_secret(file, secrets.token_urlsafe(_SECRET_BYTES) + "\n")
        return file.read_text().strip()

    def _file(self, name: str) -> Path:
        return self.directory / name
