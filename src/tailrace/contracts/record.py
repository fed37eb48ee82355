"""The changelog record: what the pipeline writes and the materializer reads.

    key      the view key as UTF-8 text; several columns as a JSON array
    value    the row as compact JSON, or null: the key is gone
    headers  g generation, v version, t source timestamp in ms, each as decimal text;
             x, if the row expires: when, in ms since 1970;
             p and s, if it is an event of a feed: see `event`;
             o, if the row is longer than the topic takes, so that the value is null: its bytes and the key's;
             a, if a materializer has added the record and not the pipeline: 1

The value is never parsed on its way to the client: it is carried as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# The tombstone of a row that expires has the next version, which has to be a number, too.
MAX_NUMBER = 2**63 - 2


@dataclass(frozen=True, slots=True)
class Change:
    """One changelog record: what a key holds from this offset on."""

    key: bytes
    value: bytes | None
    generation: int
    version: int
    timestamp: int
    offset: int
    expires: int | None = None
    added: bool = False
    oversize: int | None = None

    @property
    def rank(self) -> tuple[int, int, bool]:
        """What decides between two changes of one key: the later build, then the higher version, then a row.

        The pipeline gives a version to one change only. A materializer's tombstone may have the version of a row that
        it has not read yet: the row stays.
        """
        return (self.generation, self.version, self.value is not None)

    def headers(self) -> list[tuple[str, bytes]]:
        """The headers of the record that holds this change."""
        found = [("g", b"%d" % self.generation), ("v", b"%d" % self.version), ("t", b"%d" % self.timestamp)]
        if self.expires is not None:
            found.append(("x", b"%d" % self.expires))
        if self.oversize is not None:
            found.append(("o", b"%d" % self.oversize))
        if self.added:
            found.append(("a", b"1"))
        return found


class NotAChange(ValueError):
    """The record lacks something that every changelog record has. The text says what."""


def decode_change(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] | None, offset: int
) -> Change:
    """The change that a Kafka record holds. Raises NotAChange for a record of another kind."""
    if key is None:
        raise NotAChange("expected the view key as the record key, got a record without a key")
    found = dict(headers or ())
    return Change(
        key=key,
        value=value,
        generation=number(found, "g"),
        version=number(found, "v"),
        timestamp=number(found, "t"),
        offset=offset,
        expires=number(found, "x") if "x" in found else None,
        added="a" in found,
        oversize=number(found, "o") if "o" in found else None,
    )


def too_long(size: int) -> str:
    """The message about a row or event that is longer than its changelog takes."""
    return (
        f"expected a row that the changelog takes, got one of {size} bytes with its key: it is left out. "
        "Have the view make shorter rows, or raise max.message.bytes of the changelog"
    )


def number(headers: dict[str, bytes | None], name: str) -> int:
    """The number in a header. Raises NotAChange if there is none."""
    text = headers.get(name)
    if text is None:
        raise NotAChange(f"expected the header {name!r} as decimal text, got a record without it")
    if not text.isdigit() or len(text) > 19 or (number := int(text)) > MAX_NUMBER:
        raise NotAChange(f"expected the header {name!r} as decimal text up to {MAX_NUMBER}, got {text[:40]!r}")
    return number
