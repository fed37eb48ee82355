"""Reports of materializers in the store: how fresh each view is; see `tailrace.contracts.freshness`.

One small hash per app. A report is written every few seconds, so an old one is of a materializer that has ended.
Readers skip it (`freshness`), and other materializers remove it in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tailrace.contracts.freshness import FORGOTTEN, Report
from tailrace.store.layout.keys import freshness_key
from tailrace.store.layout.reports import read_reports, report_field
from tailrace.store.write.writer import StoreWriter

# An app whose materializers have all ended leaves nothing behind.
_KEPT = 24 * 3600 * 1000


class Reports:
    """For the materializer and `tailrace status`. Methods raise Unavailable if they fail."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._key = freshness_key(writer.prefix)

    def put(self, instance: str, reports: Mapping[str, Report], now: int) -> None:
        """Write the reports of an instance, and remove those that are much older than `now`, in ms."""
        if not reports:
            return
        with self._writer.at(self._key.encode()) as redis:
            pipeline = redis.pipeline(transaction=True)
            values: dict[Any, Any] = {report_field(view, instance): one.encode() for view, one in reports.items()}
            pipeline.hset(self._key, mapping=values)
            pipeline.pexpire(self._key, _KEPT)
            pipeline.hgetall(self._key)
            held = cast(dict[bytes, bytes], pipeline.execute()[2])
            old = [field for field, value in held.items() if _old(value, now)]
            if old:
                redis.hdel(self._key, *cast(list[str], old))

    def all(self) -> dict[str, list[Report]]:
        """Every report, by view."""
        with self._writer.at(self._key.encode()) as redis:
            return read_reports(cast(dict[bytes, bytes], redis.hgetall(self._key)))


def _old(value: bytes, now: int) -> bool:
    report = Report.decode(value)
    return report is None or abs(now - report.at) > FORGOTTEN
