"""Kafka refuses processes when they start: the pipeline ends and says why, the others wait and say why in health."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import ResourceType

from running import Tailrace, eventually
from secured_kafka import PASSWORD, Secured
from tailrace.dev.certificates import Authority
from tailrace.dev.redis_server import RedisServer

WRONG = "another password"
MAY_NOT = "the brokers refuse user 'movies' a right on a topic: .*: allow"
# What each process says. FILE is that of --kafka-config.
REFUSED = {
    "password": r"refuse user 'movies' \(SCRAM-SHA-512\): expected the password that they know.* in FILE",
    "authority": r"is not trusted .* those in \S+/other/ca.pem: correct ssl.truststore.location .*FILE",
    "expired": r"the certificate of \S+ has expired: renew it on the broker .*FILE",
    "elsewhere": r"the certificate of \S+ is for another address: connect by a name that is in it.*FILE",
    "rights": rf"topic \S+: {MAY_NOT} (Describe|Read) on it",
}


def test_the_pipeline_ends_and_the_others_wait_and_each_names_the_file_or_the_right(
    secured: Secured, redis_server: RedisServer, tmp_path: Path, fresh: str
) -> None:
    Authority.kept(tmp_path / "other")
    files = {
        "password": secured.file("BOTH", "SCRAM-SHA-512", java=False, sasl_password=WRONG),
        "authority": secured.file("TLS", ssl_truststore_location=str(tmp_path / "other" / "ca.pem")),
        "expired": secured.file("EXPIRED"),
        "elsewhere": secured.file("ELSEWHERE"),
        "rights": secured.file("BOTH", "SCRAM-SHA-512"),
    }
    apps = {case: Tailrace(tmp_path / case, secured.broker, redis_server, f"{case}-{fresh}") for case in REFUSED}
    with ExitStack() as ending:
        for topic in (apps["rights"].topic, f"tailrace.{apps['rights'].app}.catalog"):
            ending.enter_context(secured.only("ada", ResourceType.TOPIC, topic))
        for case, app in apps.items():
            ending.callback(app.stop)
            app.kafka_config = files[case]
            # All at once: they wait for each other's start-up, and not for the broker.
            app.start_pipeline()
            app.start_materializer()
            app.start_gateway()
        for case, app in apps.items():
            expected = re.compile(REFUSED[case].replace("FILE", re.escape(str(files[case]))))

            def says(app: Tailrace, name: str, expected: re.Pattern[str]) -> bool:
                told = app.health(name) if app.answers(name) else {}
                return any(expected.search(one) for one in [*told.get("reasons", ()), *told.get("kafka", ())])

            pipeline = app.parts["pipeline"]
            eventually(lambda pipeline=pipeline: not pipeline.running, f"{case}: the pipeline ends")  # type: ignore[misc]
            assert expected.search(pipeline.tail(1)), pipeline.tail()
            eventually(lambda: says(app, "materializer", expected), f"{case}: the materializer says so", 90)  # noqa: B023
            # A gateway needs a right when a client asks for a query: see tests/failure/test_kafka_refuses.py.
            if case != "rights":
                eventually(lambda: says(app, "gateway", expected), f"{case}: the gateway says so", 90)  # noqa: B023
            logs = "".join(part.log.read_text() for part in app.parts.values())
            assert WRONG not in logs and PASSWORD not in logs and "Traceback" not in logs
            for name, part in app.parts.items():
                print(f"{case}, {name}:\n{part.tail(12)}")
