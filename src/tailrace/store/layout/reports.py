"""What materializers report, as fields of one hash: `view/instance` → report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tailrace.contracts.freshness import Report


def report_field(view: str, instance: str) -> str:
    """The field of what one materializer reports of a view."""
    return f"{view}/{instance}"


def read_reports(fields: Mapping[bytes, bytes]) -> dict[str, list[Report]]:
    """The reports in the fields of the hash, by view; what is no report is left out."""
    found: defaultdict[str, list[Report]] = defaultdict(list)
    for name, value in fields.items():
        if (report := Report.decode(value)) is not None:
            found[name.decode().rpartition("/")[0]].append(report)
    return dict(found)
