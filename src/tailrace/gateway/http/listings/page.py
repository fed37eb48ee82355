"""Where a listing goes on: what the `next` of a page says, and the `page` of the next request.

A page is signed with a key that all gateways share, together with what it is bound to: the view, the
question, and what its client may see. So a page that was changed, made up, or made for another client is
refused.

    number of the key, 4 bytes | signature, 16 bytes | the place as JSON
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from tailrace.store.read.page_keys import PageKey

_NUMBER = 4
_SIGNATURE = 16
_DIGEST = 8
_CURSORS = 2**64
_OFFSETS = 2**63


@dataclass(frozen=True)
class ScanPlace:
    """A place in a scan over the partitions of a view, with what the listing promises.

    `offsets` is how far each partition was before the scan: the position of the listing. `after` is what the
    client had seen, None if it gets everything. The scan is in the rows of a partition or, with `gone`, in
    its tombstones. The process `server` gave the `cursor`. Of the batch at the cursor, the keys with the
    digests in `sent` are done.
    """

    generation: int
    offsets: Mapping[int, int]
    after: Mapping[int, int] | None = None
    partition: int = 0
    gone: bool = False
    cursor: int = 0
    server: str = ""
    sent: frozenset[bytes] = field(default=frozenset())

    def encode(self, bound: str, key: PageKey) -> str:
        """The text that names this place. `bound` says in which listing: view, query, rights and all."""
        held = [
            self.generation,
            _pairs(self.offsets),
            _pairs(self.after) if self.after is not None else None,
            self.partition,
            self.gone,
            self.cursor,
            self.server,
            base64.b64encode(b"".join(sorted(self.sent))).decode(),
        ]
        payload = json.dumps(held, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(_signature(bound, payload, key) + payload).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str, bound: str, partitions: int, key: PageKey) -> ScanPlace | None:
        """The place that a text names in a listing; None if it names none, or is of another listing."""
        try:
            data = _bytes(text)
            payload = data[_NUMBER + _SIGNATURE :]
            if not hmac.compare_digest(data[: _NUMBER + _SIGNATURE], _signature(bound, payload, key)):
                return None
            generation, offsets, after, partition, gone, cursor, server, sent = json.loads(payload)
            digests = base64.b64decode(sent, validate=True)
            place = cls(
                _whole(generation, _OFFSETS),
                _mapping(offsets, partitions),
                _mapping(after, partitions) if after is not None else None,
                _whole(partition, partitions),
                bool(gone),
                _whole(cursor, _CURSORS),
                str(server),
                frozenset(digests[n : n + _DIGEST] for n in range(0, len(digests), _DIGEST)),
            )
        except (ValueError, TypeError, RecursionError):
            return None
        return place if set(place.offsets) == set(range(partitions)) else None


def key_number(text: str) -> int | None:
    """The number of the key that a page says it was signed with; None if it says nothing."""
    try:
        data = _bytes(text)
    except ValueError:
        return None
    return int.from_bytes(data[:_NUMBER], "big") if len(data) > _NUMBER + _SIGNATURE else None


def digest(key: bytes) -> bytes:
    """A digest that tells a key from the others of its batch."""
    return sha256(key).digest()[:_DIGEST]


def digests(keys: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(digest(key) for key in keys)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _signature(bound: str, payload: bytes, key: PageKey) -> bytes:
    """The number of the key, and the signature that only gateways, which have the key, can write."""
    # `bound` goes in as a digest, so that nothing can move from there into the payload.
    signature = hmac.digest(key.secret, sha256(bound.encode()).digest() + payload, "sha256")[:_SIGNATURE]
    return key.number.to_bytes(_NUMBER, "big") + signature


def _pairs(offsets: Mapping[int, int]) -> list[list[int]]:
    return [[partition, offset] for partition, offset in sorted(offsets.items())]


def _mapping(pairs: list[list[int]], partitions: int) -> dict[int, int]:
    return {_whole(partition, partitions): _whole(offset + 1, _OFFSETS) - 1 for partition, offset in pairs}


def _whole(number: object, below: int) -> int:
    if type(number) is not int or not 0 <= number < below:
        raise ValueError(number)
    return number
