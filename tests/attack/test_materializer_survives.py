"""Whatever stands on its topics, the materializer goes on, serves everybody else, and starts again."""

from __future__ import annotations

import random
from pathlib import Path

import redis

from materializing import Rows
from poisoning import DEEP, GARBAGE, MaterializerProcess, damaged
from query_bench import row
from query_gateway import QueryGateway
from running import eventually
from stream_serving import HTTP, opened
from stream_serving import row as whole_row
from streaming import Streams, following, now
from tailrace.contracts.catalog import APP_RECORD, PROGRESS_RECORDS, Catalog, ViewProgress, catalog_topic
from tailrace.contracts.commands import Command, Stream, commands_topic
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.one_partition import OnePartitionWriter
from tailrace.store.layout.keys import catalog_key

ASIDE = 'tailrace_materializer_set_aside_total{what="catalog"}'


def test_four_requests_do_not_end_it_and_neither_does_its_next_start(
    streams: Streams, redis_server: RedisServer, tmp_path: Path
) -> None:
    materializer = MaterializerProcess(tmp_path, streams.log, redis_server.url)
    gateway = QueryGateway(tmp_path, streams, redis_server.url, linger=0.5)
    gateway.wait_ready()
    for _ in range(2):
        eventually(lambda: materializer.metric("tailrace_materializer_streams") == 0, "no query of before lingers")
        first = opened(gateway, streams, where="s = 'x' and s = 'y'")
        second = opened(gateway, streams, where="s = 'z'")
        eventually(lambda: materializer.metric("tailrace_materializer_streams") == 2, "both streams are there")
        for stream in (second, first):
            assert HTTP.delete(f"{gateway.url}/streams/{stream['id']}").status_code < 300
        # Each look fails where the process has ended.
        eventually(lambda: materializer.metric("tailrace_materializer_streams") == 0, "the streams have ended")
        streams.log.put(b"k", 1, whole_row("k", 3))
        copy = gateway.query("n > 2")
        copy.until(["k"])
        copy.close()
        materializer.stop()
        materializer.start()
    gateway.close()
    materializer.stop()


def _commands(streams: Streams, chance: random.Random, count: int) -> list[tuple[str, bytes | None]]:
    """Commands of few streams, most of them not as they should be."""
    found: list[tuple[str, bytes | None]] = []
    texts = [
        "s = 'a' and s = 'b'",
        "s = 'z'",
        "n > 2",
        "n = 1 or s = 'a'",
        "t > now()",
        "nothing = 1",
        "(" * 500,
        "",
        None,
    ]
    for _ in range(count):
        id = f"s-{chance.randrange(6)}"
        stream = Stream(id, streams.log.view, None, chance.choice(texts), True, now() + chance.choice([-5, 50, 60_000]))
        value: bytes | None = Command("open", stream).encode()
        kind = chance.randrange(6)
        if kind == 0:
            value = chance.choice(GARBAGE)
        elif kind == 1:
            value = None
        elif kind < 4 and value is not None:
            value = damaged(chance, value)
        found.append((id, value))
    return found


def _records(chance: random.Random) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """Changelog records of any make; their keys are none of the good ones."""
    values = [None, DEEP, b'{"n":1e99999999999999999999}', b'{"n":"x","s":7,"t":"9999-99-99"}', b"{", b"\xff", b"[1]"]
    numbers = [b"1", b"2", b"-1", b"x", b"", b"9" * 19, b"9" * 30, b"\xff"]
    found: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = []
    for n in range(40):
        headers = [(name, chance.choice(numbers)) for name in "gvtxoa" if chance.random() < 0.7]
        if chance.random() < 0.5:
            headers = [("g", b"1"), ("v", b"%d" % (n + 1)), ("t", b"1")]
        found.append((chance.choice([None, b"", b"\xff", b"bad%d" % n]), chance.choice(values), headers))
    return found


def test_no_command_catalog_or_record_ends_it_or_stops_others(
    streams: Streams, redis_server: RedisServer, tmp_path: Path, examples: int
) -> None:
    log, url, chance = streams.log, redis_server.url, random.Random(1)
    commands = OnePartitionWriter(Brokers(log.broker.address), commands_topic(log.app), "commands")
    catalogs = OnePartitionWriter(Brokers(log.broker.address), catalog_topic(log.app), "catalog")
    good = Catalog(log.app, {log.view: log.entry}).encode()
    progress = ViewProgress(log.view, 1, 3, 5).encode()
    materializer = MaterializerProcess(tmp_path, log, url)
    with following(streams, url, "n > 2") as client:
        streams.open("good", "n > 2")
        for version in range(1, examples + 2):
            for id, value in _commands(streams, chance, 150):
                commands.put(id, value)
            for _ in range(20):
                bad = chance.choice([chance.choice(GARBAGE), damaged(chance, good)])
                catalogs.put(chance.choice([APP_RECORD, "", "request/x", "\x00"]), bad)
                catalogs.put(PROGRESS_RECORDS + log.view, damaged(chance, progress))
            for key, bytes_, headers in _records(chance):
                log.put_raw(key, bytes_, headers)
            commands.flush()
            catalogs.flush()
            # What is right again is followed again, by the same process.
            before = materializer.metric(ASIDE)
            catalogs.put(APP_RECORD, DEEP)
            catalogs.flush()
            eventually(lambda before=before: materializer.metric(ASIDE) > before, "a catalog is set aside")  # type: ignore[misc]
            with redis.Redis.from_url(url) as store:
                # A gateway that starts now reads the one before.
                Catalog.decode(store.hget(catalog_key(log.prefix), APP_RECORD) or b"")
            catalogs.put(APP_RECORD, good)
            catalogs.flush()
            log.put(b"good", 100 + version, row(2 + version))
            wanted = row(2 + version)
            eventually(lambda wanted=wanted: (client.copy() or {}).get(b"good") == wanted, "a good row comes")  # type: ignore[misc]
            materializer.wait_ready()
        # A poisoned topic is passed at the next start.
        materializer.stop()
        materializer.start()
        log.put(b"good", 900, row(90))
        eventually(lambda: (client.copy() or {}).get(b"good") == row(90), "it serves again")
    rows: Rows = log.rows(url)
    assert rows[b"good"][2] == row(90)
    assert materializer.metric("tailrace_materializer_commands_refused_total") > 0
    materializer.stop()
