"""Requests: what an operator asks of the pipeline, as records on the catalog topic.

    key      request/<view>
    value    {"after": 3, "starts": {"ratings": {"0": 17}}, "why": "…"}

A request is for the generation after the one it names: a pipeline that has built it passes the request over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

REQUEST_RECORDS = "request/"


@dataclass(frozen=True)
class Request:
    """Build the next generation after `after`, from offsets by topic and partition; empty means the earliest."""

    after: int
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    why: str = "it was asked for"

    def encode(self) -> bytes:
        """Compact JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Request:
        """The request in a record value; raises ValueError for what is none."""
        found = json.loads(data)
        try:
            return cls(int(found["after"]), found.get("starts", {}), str(found.get("why", cls.why)))
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected a request, got {data[:200]!r}") from error
