"""Requests: what an operator asks of the pipeline, as records on the catalog topic.

    key      request/<view>
    value    {"after": 3, "starts": {"ratings": {"0": 17}}, "why": "…"}

A request is for the generation after the one it names. A pipeline that has built that one ignores the request.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tailrace.contracts.typed import check, read_object

log = logging.getLogger(__name__)

REQUEST_RECORDS = "request/"
# In Spark this means the earliest offset that there is.
_EARLIEST = -2


@dataclass(frozen=True)
class Request:
    """Build the next generation after `after`, from offsets by topic and partition; empty means the earliest."""

    after: int
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    why: str = "it was asked for"

    def encode(self) -> bytes:
        """Compact JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def request_for(view: str, records: Mapping[str, bytes]) -> Request | None:
    """The request for a view among the records of the catalog topic. Ignores a record that is not a request."""
    data = records.get(REQUEST_RECORDS + view)
    if data is None:
        return None
    try:
        found = read_object(data)
        request = Request(found["after"], found.get("starts", {}), found.get("why", Request.why))
        check(request)
        starts = [start for of in request.starts.values() for start in of.items()]
        if not all(partition.isdecimal() and offset >= _EARLIEST for partition, offset in starts):
            raise ValueError("expected partitions as numbers, and offsets")
        return request
    except (ValueError, KeyError):
        log.error("view %s: expected a request, got %r, which is passed over", view, data[:200])
        return None
