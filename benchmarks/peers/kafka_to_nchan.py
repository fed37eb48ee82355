"""From a topic to Nchan, as teams bridge them: each record is published to the channel of its key.

kafka_to_nchan.py KAFKA TOPIC PORT
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer

sys.path.insert(0, str(Path(__file__).parent.parent))

from nchan import masked, publisher_to


def main() -> None:
    """Publish until killed."""
    kafka, topic, port = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "nchan", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    publishers: dict[str, socket.socket] = {}
    while True:
        record = consumer.poll(1.0)
        if record is None or record.error() is not None:
            continue
        key = (record.key() or b"").decode()
        if key not in publishers:
            publishers[key] = publisher_to(int(port), int(key))
        publishers[key].sendall(masked(record.value() or b""))
        with suppress(BlockingIOError):
            publishers[key].recv(1 << 16, socket.MSG_DONTWAIT)


main()
