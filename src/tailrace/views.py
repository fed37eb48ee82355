"""Views: one row per key, always current."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.place import Place
from tailrace.topics import Topic


@dataclass(frozen=True)
class View:
    """An aggregate view: one row per key of `source`.

    `columns` maps a column's name to the Spark SQL aggregate that computes it. The row that clients see
    is the key columns followed by these. `changelog` names the compacted topic that the view is written to.
    """

    name: str
    source: Topic
    key: tuple[str, ...]
    columns: Mapping[str, str]
    changelog: str
    place: Place
