"""The record of a feed's changelog: one event, for one client.

    key      the client as UTF-8 text; several columns as a JSON array
    value    the event as compact JSON
    headers  g, v and t as for a view; p, the partition of the source topic that the event comes from;
             s, the source topic: another one if it was deleted and made anew;
             o, if the event is longer than the topic takes, so that the value is null: its bytes and the key's

The version is the event's offset in that partition plus one: with p and s it says which source record it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.contracts.record import NotAChange, number, too_long

_LONGEST_SOURCE = 40


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event of a feed. `source` is the source topic and its partition, as text."""

    client: bytes
    value: bytes
    generation: int
    version: int
    timestamp: int
    offset: int
    source: bytes

    @property
    def identity(self) -> bytes:
        """What tells it from every other event, including those that a transform has made of the same record."""
        return identity(self.client, self.value, self.source, self.version)

    def headers(self) -> list[tuple[str, bytes]]:
        """The headers of the record that holds this event."""
        origin, _, partition = self.source.rpartition(b":")
        found = [("g", b"%d" % self.generation), ("v", b"%d" % self.version), ("t", b"%d" % self.timestamp)]
        return [*found, ("p", partition), ("s", origin)]


def identity(client: bytes, value: bytes, source: bytes, version: int) -> bytes:
    """See `FeedEvent.identity`."""
    digest = hashlib.blake2b(b"%d %b%b" % (len(client), client, value), digest_size=10)
    return b"%b:%d:%b" % (source, version, digest.digest())


def decode_event(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] | None, offset: int
) -> FeedEvent:
    """The event that a Kafka record holds. Raises NotAChange for a record of another kind."""
    if key is None:
        raise NotAChange("expected the client as the record key, got a record without a key")
    found = dict(headers or ())
    if value is None:
        if "o" in found:
            raise NotAChange(too_long(number(found, "o")))
        raise NotAChange("expected an event as the record value, got a record without a value")
    origin = found.get("s") or b""
    if len(origin) > _LONGEST_SOURCE:
        raise NotAChange(f"expected the header 's' with {_LONGEST_SOURCE} bytes at most, got {len(origin)}")
    return FeedEvent(
        client=key,
        value=value,
        generation=number(found, "g"),
        version=number(found, "v"),
        timestamp=number(found, "t"),
        offset=offset,
        source=b"%b:%d" % (origin, number(found, "p")),
    )
