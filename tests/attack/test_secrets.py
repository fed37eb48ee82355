"""Every secret that processes take is a canary, and nothing that they write, print or serve holds one: not while all is
well, not while they are refused, not after a crash. A few places have to hold a secret; the tests name each.

One stack serves all tests, in their order: the later ones break it.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Producer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import canaries
from access_tokens import bearer
from canaries import Canaries, forms
from canary_stack import HARD, CanaryStack, foreign_authority
from registry_server import RegistryServer
from running import PATIENCE, eventually
from services import Services
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

SCRATCH = "checkpoints/.scratch"
# What the file holds that Spark's clients read: what they need to connect.
OF_SPARK = {"Kafka password of pipeline", "key of pipeline at Kafka"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, registry: RegistryServer) -> Iterator[CanaryStack]:
    directory = tmp_path_factory.mktemp("secrets")
    services = Services(directory / "services")
    made: CanaryStack | None = None
    try:
        made = CanaryStack(directory, services, registry)
        yield made
    finally:
        if made is not None:
            made.stop()
        services.stop()


def allow(stack: CanaryStack, user: str, password: str) -> None:
    """Let a user in at the registry."""
    stack.front.allowed = {*(stack.front.allowed or ()), httpx.BasicAuth(user, password)._auth_header}


@pytest.fixture(scope="module")
def pipeline_files(stack: CanaryStack) -> dict[str, Path]:
    """The pipeline's: stores with passwords, a password in a file, a user of the registry and an encrypted key."""
    of_registry = stack.canaries.secret("registry password of pipeline", HARD)
    allow(stack, "pipeline", of_registry)
    certificate, key, key_password = stack.locked("pipeline at the registry")
    shown = {"ssl.certificate.location": str(stack.file(certificate)), "ssl.key.location": str(stack.file(key))}
    found = {
        "kafka_config": stack.entries(stack.sasl("SCRAM-SHA-512", "pipeline") | stack.stores("pipeline at Kafka")),
        "kafka_sasl_password_file": stack.file(stack.kafka_user("pipeline")),
        "registry_config": stack.entries(stack.at_registry("pipeline") | stack.trusted | shown),
    }
    flags = ("--checkpoints", "checkpoints", "--create-topics", "all", "--rehearse", "no", "--batch-interval", "5s")
    stack.start("pipeline", *flags, registry_password=of_registry, registry_key_password=key_password, **found)
    return found


@pytest.fixture(scope="module")
def materializer_files(stack: CanaryStack) -> dict[str, Path]:
    """The materializer's: client credentials and the password of a key in the file; Redis by its URL."""
    secret = stack.canaries.secret("OAuth secret of materializer", HARD)
    stack.secured.provider.clients["materializer"] = secret
    certificate, key, key_password = stack.locked("materializer at Kafka")
    shown = {"ssl.keystore.location": str(stack.file(certificate + key)), "ssl.key.password": key_password}
    found = {"kafka_config": stack.entries(stack.oauth("materializer", secret) | stack.trusted | shown)}
    stack.start("materializer", redis=stack.redis_url("materializer", stack.redis_user("materializer")), **found)
    return found


@pytest.fixture(scope="module")
def gateway_variables(stack: CanaryStack) -> dict[str, object]:
    """The gateway's: most secrets in variables; a token at the registry, stores there, an encrypted key at Kafka."""
    certificate, key, key_password = stack.locked("gateway at Kafka")
    shown = {"ssl.certificate.location": str(stack.file(certificate)), "ssl.key.location": str(stack.file(key))}
    token, served = stack.canaries.secret("registry token"), stack.issued("gateway")
    stack.front.allowed = {*(stack.front.allowed or ()), f"Bearer {token}"}
    found: dict[str, object] = {
        "kafka_config": stack.entries(stack.sasl("SCRAM-SHA-256", "gateway") | stack.trusted | shown),
        "kafka_sasl_password": stack.kafka_user("gateway"),
        "kafka_key_password": key_password,
        "registry_config": stack.entries(stack.at_registry() | stack.stores("gateway at the registry")),
        "registry_token": token,
        "redis": stack.redis_url("gateway"),
        "redis_password": stack.redis_user("gateway"),
        "access": "jwt",
        "jwt_algorithm": "HS256",
        "jwt_secret": stack.jwt_secret,
        "auth_cookie": "session",
        "tls_cert": stack.file(served.certificate),
        "tls_key": stack.file(served.key),
    }
    stack.start("gateway", **found)
    return found


Files = dict[str, Path]
Variables = dict[str, object]


def test_a_running_stack_shows_no_secret(
    stack: CanaryStack, pipeline_files: Files, materializer_files: Files, gateway_variables: Variables
) -> None:
    # Beside the start of the others: the command's own Spark.
    password = stack.canaries.secret("registry password of check", HARD)
    allow(stack, "check", password)
    at_registry = stack.front.url(login=f"check:{quote(password, safe='')}")
    checking = {"registry": at_registry, "registry_config": stack.entries(stack.stores("check at the registry"))}
    assert "no mistakes" in (checked := stack.finish("check", "check", "movies:app", **checking)), checked
    stack.wait_well("pipeline", "materializer", "gateway")
    produce(stack, stack.topic, value=b"\xff no Avro")
    stack.rate(1, 2)
    as_clients(stack)

    kafka = stack.sasl("SCRAM-SHA-256", "status") | stack.trusted | {"sasl.password": stack.kafka_user("status")}
    redis = {"redis": stack.redis_url("status"), "redis_password_file": stack.file(stack.redis_user("status"))}
    told = stack.finish("status", "status", stack.app, "--json", kafka_config=stack.entries(kafka), **redis)
    assert stack.view in told, told
    told = stack.finish(
        "revoke",
        *("revoke", stack.app, "--sub", "bob"),
        redis=stack.sentinel.url("revoker"),
        redis_password_file=stack.file(stack.redis_user("revoker")),
        redis_sentinel_password=stack.sentinel.password,
    )
    assert "revoked" in told, told

    for name in ("pipeline", "materializer", "gateway"):
        for path in ("/metrics", "/health/live", "/health/ready", "/nowhere"):
            stack.ask(name, path)
    for path in ("/openapi.json", "/asyncapi.json", "/docs", "/views", f"/views/{stack.view}", "/tailrace.js"):
        stack.ask("gateway", path)
    assert any(path.stat().st_size for path in (stack.written / "events").rglob("*")), "Spark writes no log of events"

    assert stack.found() == {f"{SCRATCH}/kafka-0.properties": OF_SPARK}
    assert modes(stack) == {0o600}
    # Processes have what they were given, and have passed nothing on.
    assert stack.environments == {
        "environment of tailrace pipeline": {
            "registry password of pipeline",
            "key password of pipeline at the registry",
        },
        "environment of tailrace materializer": {"Redis password of materializer"},
        "environment of tailrace gateway": {
            "Kafka password of gateway",
            "key password of gateway at Kafka",
            "registry token",
            "Redis password of gateway",
            "JWT secret",
        },
        "environment of tailrace check": {"registry password of check"},
        "environment of tailrace revoke": {"Sentinel password"},
    }


def as_clients(stack: CanaryStack) -> None:
    """Say who they are in every way that there is, right and wrong."""
    path = f"/views/{stack.view}/1"
    wrong = stack.signed(stack.canaries.secret("JWT secret of somebody else", " and more than 32 bytes"))
    assert stack.ask("gateway", path).status_code == 200
    assert stack.ask("gateway", path, headers={"Cookie": f"session={stack.token}"}).status_code == 200
    assert stack.ask("gateway", path, headers=bearer(wrong)).status_code == 401
    assert stack.ask("gateway", path, headers={"Authorization": f"Basic {stack.token}"}).status_code == 401
    assert stack.ask("gateway", f"{path}?access_token={stack.token}").status_code == 400
    made = httpx.post(stack.url("gateway", "/tickets"), headers=bearer(stack.token), verify=stack.tls, timeout=30)
    ticket = made.json()["ticket"]
    stack.canaries.watch("ticket", ticket)
    for status in (200, 401):
        url = stack.url("gateway", f"{path}/events?ticket={ticket}")
        with httpx.stream("GET", url, verify=stack.tls, timeout=30) as answer:
            assert answer.status_code == status
            stack.keep("gateway", f"{answer.headers}\n{next(answer.iter_text())}")
    for key, code in ((stack.token, 1000), (wrong, 4401)):
        url, heard = stack.url("gateway", "/ws").replace("https", "wss"), ""
        with suppress(ConnectionClosed), connect(url, ssl=stack.tls, compression=None, open_timeout=30) as link:
            link.send(json.dumps({"type": "auth", "token": key}))
            link.send(json.dumps({"type": "subscribe", "id": "1", "view": stack.view, "keys": ["1"]}))
            while '"ready"' not in heard:
                heard += str(link.recv(30))
        stack.keep("gateway", f"{heard}\n{link.close_code} {link.close_reason}")
        assert link.close_code == code, heard


def produce(stack: CanaryStack, topic: str, **record: Any) -> None:
    """Write a record where nobody asks for a password."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": stack.secured.broker.address})
    producer.produce(topic, **record, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0 and failed == [None]


def modes(stack: CanaryStack) -> set[int]:
    """Who may read the files with secrets that the pipeline has written."""
    return {stat.S_IMODE(file.stat().st_mode) for file in (stack.written / SCRATCH).glob("kafka-*")}


@pytest.mark.parametrize("form", forms(b"any"))
def test_a_planted_secret_is_found_in_whatever_form(form: str, tmp_path: Path) -> None:
    planted = Canaries()
    secret = planted.secret("planted").encode()
    before = form.rpartition(",")[2].strip().partition(" ")[0]
    if form.startswith("base64"):
        coded = base64.b64encode(b"x" * int(before) + secret + b" and more")
        coded = coded.translate(bytes.maketrans(b"+/", b"-_")) if "URLs" in form else coded
    else:
        coded = forms(secret)[form]
    (tmp_path / "log").write_bytes(b"before " + coded.upper() + b" after" if "base64" not in form else coded)
    with zipfile.ZipFile(tmp_path / "state.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("entry", coded)
    assert planted.search(canaries.files(tmp_path)) == {"log": {"planted"}, "state.zip!entry": {"planted"}}


def test_a_planted_secret_is_found_wherever_it_is(stack: CanaryStack, tmp_path: Path) -> None:
    planted = Canaries()
    secret = planted.secret("planted")
    places: dict[str, dict[str, Any]] = {"value": {"value": secret}, "key": {"key": secret}}
    places["header"] = {"headers": [("name", secret.encode())]}
    for place, record in places.items():
        Topics(Brokers(stack.secured.broker.address)).create(place, partitions=2, replication=1, config={})
        produce(stack, place, **record)
    stack.store.hset("planted", "field", secret)
    (tmp_path / secret).touch()
    shell = ["/bin/sh", "-c", "sleep 600 & wait", secret]
    with Popen(shell, env={"PATH": os.defpath, "SECRET": secret}, start_new_session=True) as process:
        try:
            in_topics = planted.search(canaries.topics(stack.secured.broker.address))
            assert in_topics == {f"topic {place}": {"planted"} for place in places}
            assert planted.search(canaries.redis_keys(stack.redis.url)) == {"Redis key planted": {"planted"}}
            assert planted.search(canaries.files(tmp_path)) == {secret: {"planted"}}
            of_both = {"command line of sh", "environment of sh", "environment of sleep"}

            def seen() -> set[str]:
                shown = [*canaries.command_lines(process.pid), *canaries.environments(process.pid)]
                return set(planted.search(shown))

            eventually(lambda: seen() == of_both, "the shell has started the other process")
        finally:
            os.killpg(process.pid, 9)
            stack.store.delete("planted")


@pytest.mark.campaign("the ordinary run has processes that are refused")
def test_commands_that_are_refused_show_no_secret(stack: CanaryStack) -> None:
    (stack.written / "broken.py").write_text("app = None\nraise ValueError('no app')\n")
    secret, at = stack.canaries.secret, stack.redis_url
    kafka = stack.sasl("SCRAM-SHA-256", "status") | stack.trusted
    wrong, own = secret("wrong secret", HARD), stack.stores("a stranger")
    certificate, locked, _ = stack.locked("a stranger")
    bare = secret("bare password")
    pem = stack.issued("a pasted key").key
    # Such a server repeats the login in its error.
    renamed = ("--rename-command", "HELLO", "", "--rename-command", "AUTH", "")
    login_unknown = stack.services.redis(options=renamed)
    login = f"PlainLoginModule required\n username=status\n {bare}\n"
    shown = {"ssl.certificate.location": str(stack.file(certificate)), "ssl.key.location": str(stack.file(locked))}
    given: dict[str, dict[str, str]] = {
        "password": kafka | {"sasl.password": wrong},
        "mechanism": kafka | {"sasl.mechanism": "PLAIN", "sasl.password": wrong},
        "client secret": stack.oauth("materializer", wrong) | stack.trusted,
        "authority": kafka | {"ssl.truststore.location": str(stack.file(foreign_authority())), "sasl.password": wrong},
        "truststore password": kafka | own | {"ssl.truststore.password": wrong, "sasl.password": wrong},
        "keystore password": kafka | own | {"ssl.keystore.password": wrong, "sasl.password": wrong},
        "key password": kafka | shown | {"ssl.key.password": wrong, "sasl.password": wrong},
        "listener": kafka | {"bootstrap.servers": stack.secured.address("TLS"), "sasl.password": wrong},
        "pasted key": kafka | {"ssl.key.location": pem, "ssl.certificate.location": pem, "sasl.password": wrong},
    }
    of_kafka: dict[str, Variables] = {
        **{name: {"kafka_config": stack.entries(entries)} for name, entries in given.items()},
        "lines": {"kafka_config": stack.file(f"security.protocol=SASL_SSL\nsasl.jaas.config={login}")},
        "key in lines": {"kafka_config": stack.file(f"security.protocol=SSL\nssl.keystore.key={pem}")},
        "password for a file": {"kafka_config": stack.file(bare)},
        "key for a path": {"kafka_config": pem},
        "two places": {"kafka_config": stack.entries(kafka | {"sasl.password": bare}), "kafka_sasl_password": wrong},
        "password for a path": {"kafka_config": stack.entries(kafka), "kafka_sasl_password_file": bare},
        "no file": {"kafka_sasl_password": wrong},
    }
    of_redis: dict[str, Variables] = {
        "URL": {"redis": at("status", wrong)},
        "password": {"redis": at("status"), "redis_password": wrong},
        "address as a user": {"redis": at("ann@example.com", wrong)},
        "no scheme": {"redis": at("status", bare).partition("//")[2]},
        "not encoded": {"redis": f"redis://status:{wrong}@{stack.redis.url.partition('//')[2]}"},
        "two passwords": {"redis": at("status", bare), "redis_password": wrong},
        "Sentinel": {"redis": stack.sentinel.url("revoker"), "redis_sentinel_password": wrong},
        "Sentinel in the URL": {"redis": f"{stack.sentinel.url('revoker')}?sentinel_password={quote(wrong)}"},
        "server without login": {"redis": login_unknown.url.replace("://", f"://status:{bare}@")},
    }
    of_tokens: dict[str, Variables] = {
        "short": {"jwt_secret": bare},
        "of another algorithm": {"jwt_secret": f"{bare} and more than 32 bytes", "jwt_algorithm": "RS256"},
        "private key": {"jwt_key": stack.file(pem), "jwt_algorithm": "ES256"},
        "for a path": {"jwt_key": bare},
        "TLS key for a path": {"jwt_secret": stack.jwt_secret, "tls_cert": certificate, "tls_key": pem},
        "TLS key with a password": {"tls_cert": stack.file(certificate), "tls_key": stack.file(locked)},
    }
    registry = stack.at_registry()
    of_registry: dict[str, Variables] = {
        "URL": {"registry": f"http://ann@example.com:{wrong}@127.0.0.1:port"},
        "key password": {"registry_config": stack.entries(registry | shown), "registry_key_password": wrong},
        "store password": {"registry_config": stack.entries(registry | own | {"ssl.keystore.password": wrong})},
        "token for a kind": {"registry_config": stack.entries(registry | {"bearer.auth.credentials.source": bare})},
        "user and token": {"registry": stack.front.url(login=f"ann:{bare}"), "registry_token": wrong},
    }
    door = {"access": "jwt", "jwt_algorithm": "HS256", "kafka": "none", "port": 0}
    commands: dict[str, tuple[list[str], Variables]] = {
        **{f"Kafka, {name}": (["status", stack.app], variables) for name, variables in of_kafka.items()},
        **{f"Redis, {name}": (["revoke", stack.app, "--sub", "bob"], one) for name, one in of_redis.items()},
        **{f"tokens, {name}": (["gateway", stack.app], door | variables) for name, variables in of_tokens.items()},
        **{
            f"registry, {name}": (["gateway", stack.app], {"kafka": "none", "port": 0, **variables})
            for name, variables in of_registry.items()
        },
        "module": (["pipeline", "broken:app"], {"registry_token": wrong, "redis": at("status", wrong)}),
    }

    def refused(name: str) -> str:
        arguments, variables = commands[name]
        return stack.finish(f"refused-{name.replace(', ', '-').replace(' ', '-')}", *arguments, **variables)

    with ThreadPoolExecutor(4) as threads:
        told = dict(zip(commands, threads.map(refused, commands), strict=True))
    for name, text in told.items():
        assert "tailrace: " in text, f"{name}: {text}"
        assert ('File "' in text) is (name == "module"), f"{name}: {text}"
    assert stack.found() == {f"{SCRATCH}/kafka-0.properties": OF_SPARK}


def test_processes_that_are_refused_show_no_secret(
    stack: CanaryStack, pipeline_files: Files, materializer_files: Files, gateway_variables: Variables
) -> None:
    secret, provider = stack.canaries.secret, stack.secured.provider
    # Spark's query fails, and starts again with what the file says then: at last with client credentials.
    password = pipeline_files["kafka_sasl_password_file"]
    password.write_text(secret("wrong Kafka password of pipeline", HARD))
    stack.wait_unwell("pipeline", "refuse user 'pipeline'")
    of_client = provider.clients["pipeline"] = secret("OAuth secret of pipeline", HARD)
    password.write_text(of_client)
    stack.entries(stack.oauth("pipeline", of_client) | stack.trusted, pipeline_files["kafka_config"])
    stack.wait_well("pipeline")
    stack.rate(3)

    of_materializer = stack.entries(stack.oauth("materializer", secret("wrong OAuth secret", HARD)) | stack.trusted)
    of_materializer.replace(materializer_files["kafka_config"])
    stack.wait_unwell("materializer", "OAUTHBEARER failed")
    stack.set_redis_password("gateway", secret("another Redis password", HARD))
    stack.wait_unwell("gateway", "refuses this user")
    stack.set_redis_password("gateway", str(gateway_variables["redis_password"]))
    secrets = provider.clients["materializer"]
    stack.entries(stack.oauth("materializer", secrets) | stack.trusted, materializer_files["kafka_config"])
    stack.wait_well("materializer", "gateway")

    # An error that nobody foresaw has a traceback: there is no such database.
    lost = f"{stack.redis_url('lost', stack.redis_user('lost'))}99"
    part = stack.begin("lost-materializer", "materializer", stack.app, redis=lost, **materializer_files)
    part.wait(lambda: "Traceback" in part.log.read_text(), PATIENCE)
    stack.parts.pop("lost-materializer").stop()
    assert "DB index is out of range" in part.log.read_text()

    found = stack.found()
    files = [name for name in found if name.startswith(SCRATCH)]
    assert found == {name: found[name] for name in files} and 1 <= len(files) <= 2 and modes(stack) == {0o600}
    assert all(place.startswith("environment of tailrace ") for place in stack.environments), stack.environments


def test_a_crash_leaves_a_secret_in_one_file_alone_which_the_next_start_removes(stack: CanaryStack) -> None:
    stack.secured.broker.kill()
    for name in ("materializer", "gateway"):
        log = stack.parts[name].log
        eventually(lambda log=log: "the client goes on trying" in log.read_text(), f"{name} misses Kafka", 60)  # type: ignore[misc]
    stack.parts.pop("pipeline").kill()
    found = stack.found()
    assert found and all(place.startswith(f"{SCRATCH}/kafka-") for place in found), found
    assert modes(stack) == {0o600}
    # It can't start without Kafka, but it has begun.
    variables = {"kafka": stack.secured.broker.address}
    told = stack.finish("next-pipeline", "pipeline", "movies:app", "--checkpoints", "checkpoints", **variables)
    assert "did not answer" in told, told
    for name in ("materializer", "gateway"):
        stack.parts.pop(name).stop()
    assert stack.found() == {}
