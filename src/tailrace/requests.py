"""Requests: what an operator asks of the pipeline, as records on the catalog topic.

    key      request/<view>
    value    {"after": 3, "starts": {"ratings": {"0": 17}}, "why": "…"}

A request is for the generation after the one it names: a pipeline that has built it passes the request over.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

log = logging.getLogger(__name__)

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


def request_for(view: str, records: Mapping[str, bytes]) -> Request | None:
    """What was asked for a view, out of the records of the catalog topic; what is no request is passed over."""
    data = records.get(REQUEST_RECORDS + view)
    if data is None:
        return None
    try:
        found = json.loads(data)
        return Request(int(found["after"]), found.get("starts", {}), str(found.get("why", Request.why)))
    except (ValueError, KeyError, TypeError, AttributeError):
        log.error("view %s: expected a request, got %r, which is passed over", view, data[:200])
        return None
