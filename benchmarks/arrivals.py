"""When each version of each key was first seen at a stage."""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import redis
from confluent_kafka import OFFSET_END, Consumer, TopicPartition


class Arrivals:
    """The first time that a version of a key, or a later one, was seen; filled by a thread of its own."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(10)

    def newest(self, key: int) -> int:
        """The newest version seen of a key."""
        return self.seen[key][-1][0] if self.seen[key] else 0

    def times(self, key: int) -> dict[int, float]:
        """Per version of a key, when it or a later one was seen."""
        found: dict[int, float] = {}
        for version, at in self.seen[key]:
            for number in range(len(found) + 1, version + 1):
                found[number] = at
        return found

    def _note(self, row: bytes, at: float) -> None:
        fields = json.loads(row)
        key, version = fields["movie_id"], fields["ratings"]
        if version > self.newest(key):
            self.seen[key].append((version, at))

    def _watch(self) -> None:
        raise NotImplementedError


class OnChangelog(Arrivals):
    """Changelog records as a Kafka consumer sees them. `kafka` is what it is told in order to connect."""

    def __init__(self, kafka: Mapping[str, Any], topic: str, group: str) -> None:
        super().__init__()
        self._consumer = Consumer({**kafka, "group.id": group, "enable.auto.commit": False})
        partitions = self._consumer.list_topics(topic, timeout=15).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in partitions])

    def _watch(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None and message.value() is not None:
                self._note(message.value(), time.time())  # type: ignore[arg-type]
        self._consumer.close()


class InRedis(Arrivals):
    """Changes as Redis publishes them."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._pubsub = redis.Redis.from_url(url).pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._pubsub.psubscribe("*:changes:*")

    def _watch(self) -> None:
        while not self._stop.is_set():
            message = self._pubsub.get_message(timeout=0.2)
            if message is not None:
                self._note(message["data"].split(b" ", 4)[4], time.time())


class AtClient(Arrivals):
    """Frames as SSE clients read them, one connection per key; with a token, if the gateway wants one."""

    def __init__(
        self, gateway: str, view: str, keys: list[int], token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__()
        self._selector = selectors.DefaultSelector()
        self._rest: dict[socket.socket, bytes] = {}
        self.ready = 0
        address = urlsplit(gateway)
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        for key in keys:
            link = socket.create_connection((address.hostname, address.port))
            if tls is not None:
                link = tls.wrap_socket(link, server_hostname=address.hostname)
            request = f"GET /views/{view}/{key}/events HTTP/1.1\r\nHost: {address.netloc}\r\n{shown}\r\n"
            link.sendall(request.encode())
            link.setblocking(False)
            self._selector.register(link, selectors.EVENT_READ)
            self._rest[link] = b""

    def _watch(self) -> None:
        while not self._stop.is_set():
            for chosen, _ in self._selector.select(0.2):
                self._read(cast(socket.socket, chosen.fileobj))
        for link in self._rest:
            link.close()

    def _read(self, link: socket.socket) -> None:
        try:
            # More than a record of TLS, so that nothing stays behind where the selector does not see it.
            data = link.recv(65536)
        except ssl.SSLWantReadError:
            # A part of a record of TLS, or a message of TLS itself.
            return
        now = time.time()
        if not data:
            raise ConnectionError("the gateway closed a stream")
        *lines, self._rest[link] = (self._rest[link] + data).split(b"\n")
        for line in lines:
            if line.startswith(b'data: {"movie_id"'):
                self._note(line[6:], now)
            elif line == b"event: ready":
                self.ready += 1
