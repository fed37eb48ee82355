"""A stack of processes whose every secret is a canary, in every way in which they take secrets."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import redis
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

import canaries
from access_tokens import bearer, token
from canaries import Canaries, Found
from registry_front import RegistryFront, server_context
from registry_server import RegistryServer
from running import PATIENCE, eventually
from secured_kafka import Secured, write_properties
from services import Services
from tailrace.dev.certificates import Authority, Issued, write_secret
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.redis_server import find_redis_server
from tailrace.errors import PartDied
from tailrace.kafka.config.jaas import OAUTHBEARER, Jaas, write_jaas

MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", format="avro", registry=True, accept=True)
app.view("averages-{fresh}", ratings, key="movie_id", columns={{"rating": "avg(rating)", "ratings": "count(*)"}})
"""
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Rating",
        "fields": [{"name": "movie_id", "type": "long"}, {"name": "rating", "type": "double"}],
    }
)
# All that Spark plans and does, as a user has it written down.
_SPARK = "spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir file://{events}\n"
# Characters that somebody has to escape.
HARD = '"\\ of = #:@/%ü;'


class CanaryStack:
    """Services and processes. `given` has the files that processes are given, `written` all that they write.

    `environments` and `command_lines` keep in which of them a secret was seen.
    """

    def __init__(self, directory: Path, services: Services, registry: RegistryServer) -> None:
        fresh = uuid4().hex[:10]
        self.app, self.topic, self.view = f"movies-{fresh}", f"ratings-{fresh}", f"averages-{fresh}"
        self.canaries = Canaries()
        self.environments: Found = {}
        self.command_lines: Found = {}
        self.parts: dict[str, Part] = {}
        self.given, self.written = directory / "given", directory / "written"
        for path in (self.given, *(self.written / name for name in ("tmp", "events", "served"))):
            path.mkdir(parents=True)
        (self.written / "movies.py").write_text(MODULE.format(fresh=fresh))
        (self.given / "spark-defaults.conf").write_text(_SPARK.format(events=self.written / "events"))
        self.services = services
        self._numbers = count()
        self._ports = {name: free_port() for name in ("pipeline", "materializer", "gateway")}
        self._base = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
        self._base |= {
            "TMPDIR": str(self.written / "tmp"),
            "SPARK_CONF_DIR": str(self.given),
            "TAILRACE_LOG_LEVEL": "debug",
        }
        self.secured = Secured(directory / "secured", services)
        self.authority = self.secured.authority
        self.redis = services.redis()
        self.store: Any = redis.Redis.from_url(self.redis.url)
        self.sentinel = Sentinel(directory / "sentinel", self.redis.port, self.canaries.secret("Sentinel password"))
        httpx.post(
            f"{registry.url}/subjects/{self.topic}-value/versions", json={"schema": SCHEMA}, timeout=30
        ).raise_for_status()
        self.front = RegistryFront(registry)
        self.front.context = server_context(
            self.given, self.authority.issue("registry"), trusts=self.authority.certificate
        )
        self.front.allowed = set()
        self.jwt_secret = self.canaries.secret("JWT secret", " and more than 32 bytes")
        self.token = self.signed(self.jwt_secret)

    def stop(self) -> None:
        for name in reversed(list(self.parts)):
            part = self.parts.pop(name)
            part.stop()
            print(f"the end of the log of {name}:\n{part.tail(60)}")
        self.sentinel.part.kill()
        self.front.stop()
        self.secured.stop()

    # Secrets.

    def signed(self, key: str) -> str:
        """A token of a client; its signature is a canary."""
        found = token("ann", key=key)
        self.canaries.watch("token", found.rpartition(".")[2])
        return found

    def file(self, content: str | bytes) -> Path:
        """A file that a process is given."""
        path = self.given / f"file-{next(self._numbers)}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def entries(self, entries: Mapping[str, str], file: Path | None = None) -> Path:
        """A file of entries, or what such a file says from now on."""
        file = file or self.given / f"entries-{next(self._numbers)}.properties"
        write_properties(file, entries)
        return file

    def kafka_user(self, name: str) -> str:
        """The password of a new user at the broker."""
        password = self.canaries.secret(f"Kafka password of {name}", HARD)
        self.secured.set_password(name, password)
        return password

    def redis_user(self, name: str) -> str:
        """The password of a new user of Redis."""
        password = self.canaries.secret(f"Redis password of {name}", HARD)
        self.set_redis_password(name, password)
        return password

    def set_redis_password(self, name: str, password: str) -> None:
        """Let a user log in with a password, and not with the one before. Its connections end."""
        self.store.execute_command("ACL", "SETUSER", name, "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        self.store.execute_command("CLIENT", "KILL", "USER", name)

    def redis_url(self, user: str, password: str = "") -> str:
        """The URL of Redis for a user."""
        login = f"{user}:{quote(password, safe='')}" if password else user
        return self.redis.url.replace("://", f"://{login}@")

    def issued(self, what: str) -> Issued:
        """A certificate, whose key is a canary."""
        found = self.authority.issue(what.replace(" ", "-"))
        self.canaries.watch_key(f"key of {what}", found.key)
        return found

    def locked(self, what: str) -> tuple[str, str, str]:
        """A certificate, its encrypted key, and the password of that."""
        issued, password = self.issued(what), self.canaries.secret(f"key password of {what}")
        own = load_pem_private_key(issued.key.encode(), None)
        key = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
        return issued.certificate, key.decode(), password

    # Entries of files.

    @property
    def trusted(self) -> dict[str, str]:
        """Entries that say whom to trust."""
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.secured.ca)}

    def stores(self, what: str) -> dict[str, str]:
        """Entries for a truststore and a keystore, each with a password."""
        issued = self.issued(what)
        of_trust, of_keys = (self.canaries.secret(f"{kind}store password of {what}") for kind in ("trust", "key"))
        own: Any = load_pem_private_key(issued.key.encode(), None)
        shown, authority = (
            x509.load_pem_x509_certificate(one.encode()) for one in (issued.certificate, self.authority.certificate)
        )
        trusted = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(authority, b"ca")], BestAvailableEncryption(of_trust.encode())
        )
        keys = pkcs12.serialize_key_and_certificates(
            b"own", own, shown, None, BestAvailableEncryption(of_keys.encode())
        )
        return {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.file(trusted)),
            "ssl.truststore.password": of_trust,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.file(keys)),
            "ssl.keystore.password": of_keys,
        }

    def sasl(self, mechanism: str, user: str) -> dict[str, str]:
        """Entries for SASL over TLS, without a password."""
        protocol = {"bootstrap.servers": self.secured.address("BOTH"), "security.protocol": "SASL_SSL"}
        return protocol | {"sasl.mechanism": mechanism, "sasl.username": user}

    def oauth(self, client: str, secret: str) -> dict[str, str]:
        """Entries for client credentials over TLS, as Java's clients have them."""
        options = {"clientId": client, "clientSecret": secret, "scope": "kafka", **self.trusted}
        found = self.sasl("OAUTHBEARER", "")
        del found["sasl.username"]
        return found | {
            "sasl.oauthbearer.token.endpoint.url": self.secured.provider.encrypted_token_url,
            "sasl.jaas.config": write_jaas(Jaas(OAUTHBEARER, options)),
        }

    def at_registry(self, user: str = "") -> dict[str, str]:
        """The entry for the registry's address."""
        return {"schema.registry.url": self.front.url(login=user)}

    # Processes.

    def begin(self, name: str, *arguments: object, **variables: object) -> Part:
        """Start a command of Tailrace. Variables are named as settings, or as files with secrets."""
        given = {f"TAILRACE_{one.upper()}": str(value) for one, value in variables.items()}
        command = [sys.executable, "-m", "tailrace", *map(str, arguments)]
        log = self.written / f"{name}.log"
        self.parts[name] = Part(name, command, log, environment=self._base | given, cwd=self.written)
        return self.parts[name]

    def start(self, name: str, *flags: str, **variables: object) -> None:
        """Start the pipeline, the materializer or the gateway."""
        port = "--port" if name == "gateway" else "--health-port"
        app = "movies:app" if name == "pipeline" else self.app
        self.begin(name, name, app, port, self._ports[name], *flags, **variables)

    def finish(self, name: str, *arguments: object, **variables: object) -> str:
        """Run a command to its end, and look at its processes meanwhile; what it has printed, and how it failed."""
        part, failed = self.begin(name, *arguments, **variables), ""

        def ended() -> bool:
            self.look(part)
            return not part.running

        try:
            part.wait(ended, PATIENCE, 0.1)
            part.check()
        except PartDied as error:
            failed = str(error).partition(";")[0]
        self.parts.pop(name).stop()
        return part.log.read_text() + failed

    def look(self, *parts: Part) -> None:
        """Note in which environments and command lines of processes a secret is seen now."""
        pids = [part.pid for part in parts or list(self.parts.values())]
        for noted, places in (
            (self.environments, canaries.environments(*pids)),
            (self.command_lines, canaries.command_lines(*pids)),
        ):
            for place, names in self.canaries.search(places).items():
                noted.setdefault(place, set()).update(names)

    def found(self) -> Found:
        """Where a secret is: in which files, command lines, topics and keys of Redis."""
        self.look()
        places = [*canaries.files(self.written), *canaries.redis_keys(self.redis.url)]
        if self.secured.broker.part.running:
            places += canaries.topics(self.secured.broker.address)
        return {**self.canaries.search(places), **self.command_lines}

    # What they serve.

    @property
    def tls(self) -> ssl.SSLContext:
        """How clients of the gateway do TLS."""
        return ssl.create_default_context(cadata=self.authority.certificate)

    def url(self, name: str, path: str) -> str:
        """An address of a process."""
        return f"{'https' if name == 'gateway' else 'http'}://{LOOPBACK}:{self._ports[name]}{path}"

    def ask(self, name: str, path: str, method: str = "GET", **more: Any) -> httpx.Response:
        """Ask a process, and keep all that it answers; as a client with a token, unless `headers` say otherwise."""
        more = {"headers": bearer(self.token), "timeout": 30, **more}
        answer = httpx.request(method, self.url(name, path), verify=self.tls, **more)
        self.keep(name, f"{path.partition('?')[0]}\n{answer.status_code}\n{answer.headers}\n{answer.text}")
        return answer

    def keep(self, name: str, text: str) -> None:
        """Keep what a process has served."""
        (self.written / "served" / f"{next(self._numbers)}-{name}").write_text(text)

    def says(self, name: str) -> str:
        """Why a process is not well; empty if it is."""
        try:
            found = self.ask(name, "/health/ready").json()
        except httpx.HTTPError:
            return "no answer"
        return "\n".join([*found["reasons"], *found.get("kafka", ())])

    def wait_well(self, *names: str) -> None:
        for name in names:
            self.parts[name].wait(lambda name=name: self.says(name) == "", PATIENCE, 0.2)  # type: ignore[misc]

    def wait_unwell(self, name: str, reason: str) -> None:
        """Wait until a process says why it is not well."""
        eventually(lambda: reason in self.says(name), f"{name} says {reason!r}", 90)

    def rate(self, *movies: int) -> None:
        """Write ratings as a client, and wait for the row of the last."""
        for movie in movies:
            event = {"movie_id": movie, "rating": 8}
            sent = self.ask("gateway", f"/topics/{self.topic}/events?key=ann", "POST", json=event)
            assert sent.status_code == 202, sent.text
        path = f"/views/{self.view}/{movies[-1]}"
        eventually(lambda: self.ask("gateway", path).status_code == 200, "the row of a rating")


class Sentinel:
    """A Sentinel with a password, which knows a Redis."""

    def __init__(self, directory: Path, of: int, password: str) -> None:
        port = free_port()
        self.password = password
        write_secret(
            directory / "sentinel.conf",
            f"port {port}\nbind {LOOPBACK}\ndir {directory}\nrequirepass {password}\n"
            f"sentinel monitor mymaster {LOOPBACK} {of} 1\n",
        )
        command = [str(find_redis_server()), str(directory / "sentinel.conf"), "--sentinel"]
        self.part = Part("sentinel", command, directory / "sentinel.log")
        self._client: Any = redis.Redis(port=port, password=password)
        self.part.wait(self._answers, 30)
        self._hosts = f"{LOOPBACK}:{port}/mymaster/0"

    def url(self, user: str) -> str:
        """The URL for a user of the Redis."""
        return f"redis+sentinel://{user}@{self._hosts}"

    def _answers(self) -> bool:
        try:
            return bool(self._client.ping())
        except redis.RedisError:
            return False


def foreign_authority() -> str:
    """The certificate of an authority that has signed nothing here."""
    return Authority.new("another").certificate
