"""The `event` frame of a feed, as a Server-Sent Event and as a WebSocket message.

It is the same bytes for every connection of a surface: it names the feed and the client, not a subscription. The JSON
of the event is put in as it is in the changelog.
"""

from __future__ import annotations

import json

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownFeed
from tailrace.gateway.frames.websocket import message, utf8
from tailrace.store.layout.row import Row


class FeedFrames:
    """Encodes the events of one client of a feed."""

    __slots__ = ("_event", "_feed", "_message", "_partition")

    def __init__(self, feed: KnownFeed, client: bytes) -> None:
        lineage = feed.lineage.encode()
        names = (_json(feed.name), _json(client.decode()))
        self._feed = feed
        self._partition = feed.partition(client)
        self._event = b"event: event\nid: %b" % lineage
        self._message = b'{"type":"event","feed":%b,"client":%b,"position":"%b' % (*names, lineage)

    def event(self, event: Row, *, socket: bool) -> bytes:
        """The frame of an event on one of the surfaces."""
        at, value = (event.generation, self._partition, event.offset), event.value or b"null"
        if not socket:
            lines = b"\ndata: ".join(value.splitlines()) if b"\n" in value or b"\r" in value else value
            return b"%b.%d.%d-%d\ndata: %b\n\n" % (self._event, *at, lines)
        return message(b'%b.%d.%d-%d","event":%b}' % (self._message, *at, utf8(value)))

    def position(self, offset: int) -> Position:
        """The position of who has everything up to an offset; before the first record there is none to name."""
        offsets = {self._partition: offset} if offset >= 0 else {}
        return Position(self._feed.lineage, self._feed.entry.generation, offsets)


def _json(value: str) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
