"""The contenders of `end-to-end`: all processes between the events and the clients, with a broker of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from centrifugo import centrifugo_config, centrifugo_way
from contenders import PARTITIONS, PEERS, REAL_TIME, Assignment, start_streams
from load_client import Way
from nchan import Nginx, nchan_way
from stack import stack
from tailrace.dev.broker import Broker
from tailrace.dev.parts import Part
from tailrace.dev.ports import free_port
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import COMPACTED, Topics
from under_load import SSE, connected, request

OUTPUT = "averages"
_READY_IN = 60.0


@dataclass(frozen=True)
class Peer:
    """A contender that is ready: where events go, how clients get rows, and what must not end."""

    kafka: str
    way: Way
    parts: Sequence[Part]


@contextmanager
def tailrace(batch_interval: str) -> Iterator[Peer]:
    """Everything that Tailrace is."""
    with stack(PEERS / "stamped_views.py", "stamped", batch_interval=batch_interval) as running:
        path = "/views/rating-averages/{key}/events"
        way = Way(urlsplit(running.gateway).netloc, request(path, SSE), ready="event: ready")
        yield Peer(running.kafka, way, list(running.parts.values()))


@contextmanager
def streams_nchan(nginx: Nginx, classes: Path, place: Path) -> Iterator[Peer]:
    """Kafka Streams, a bridge, and Nchan."""
    with ExitStack() as ends:
        broker, streams = _streams(ends, classes, place)
        port = free_port()
        server = Part("nchan", nginx.command(place, port), place / "nchan.log")
        ends.callback(server.stop)
        connected(server, port).close()
        command = [sys.executable, str(PEERS / "kafka_to_nchan.py"), broker.address, OUTPUT, str(port)]
        bridge = Part("bridge", command, place / "bridge.log")
        ends.callback(bridge.stop)
        yield Peer(broker.address, nchan_way(port, SSE), [streams, server, bridge])


@contextmanager
def streams_centrifugo(program: Path, classes: Path, place: Path) -> Iterator[Peer]:
    """Kafka Streams, and Centrifugo, whose own consumer reads what it writes."""
    with ExitStack() as ends:
        broker, streams = _streams(ends, classes, place)
        port = free_port()
        consumer = {
            "name": "averages",
            "type": "kafka",
            "enabled": True,
            "kafka": {
                "brokers": [broker.address],
                "topics": [OUTPUT],
                "consumer_group": "centrifugo",
                "publication_data_mode": {"enabled": True, "channels_header": "channels"},
            },
        }
        config = place / "centrifugo.json"
        config.write_text(json.dumps({**centrifugo_config(port), "consumers": [consumer]}))
        server = Part("centrifugo", [str(program), "-c", str(config)], place / "centrifugo.log")
        ends.callback(server.stop)
        connected(server, port).close()
        yield Peer(broker.address, centrifugo_way(port, SSE), [streams, server])


def _streams(ends: ExitStack, classes: Path, place: Path) -> tuple[Broker, Part]:
    """A broker with the topics, and Kafka Streams between them, both of which end with `ends`."""
    place.mkdir(parents=True, exist_ok=True)
    broker = Broker(place / "kafka")
    broker.start()
    ends.callback(broker.stop)
    topics = Topics(Brokers(broker.address))
    topics.create("ratings", partitions=PARTITIONS, replication=1, config={})
    topics.create(OUTPUT, partitions=PARTITIONS, replication=1, config=COMPACTED)
    assignment = Assignment(
        kind="stamped",
        mode=REAL_TIME,
        kafka=broker.address,
        prefix="",
        output=OUTPUT,
        place=place / "streams",
        interval_seconds=0,
    )
    running = start_streams(assignment, classes, cached=False)
    ends.callback(running.part.stop)
    running.part.wait(lambda: running.started() is not None, _READY_IN)
    return broker, running.part
