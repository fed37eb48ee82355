"""The catalog: what the other processes know of an app without Spark and without its module.

The pipeline writes it, after Spark's analysis, to the compacted topic `tailrace.<app>.catalog`; the
materializer copies it to Redis; the gateway reads it there. So it survives the loss of Redis.
The topic's records: key `app` → the catalog; key `progress/<view>` → how far a view's pipeline has come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from tailrace.position import lineage

FORMAT = 1
APP_RECORD = "app"
PROGRESS_RECORDS = "progress/"


@dataclass(frozen=True)
class Column:
    """A column's name and its Spark SQL type, such as `bigint`."""

    name: str
    type: str


@dataclass(frozen=True)
class CatalogView:
    """One build of a view, as other processes see it; `sources` maps each source topic to its Kafka id."""

    name: str
    changelog: str
    topic_id: str
    partitions: int
    generation: int
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    definition: Mapping[str, object]
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Catalog:
    """An app as other processes see it."""

    app: str
    views: Mapping[str, CatalogView]
    format: int = FORMAT

    def lineage(self, view: CatalogView) -> str:
        """What positions of this view start with."""
        return lineage(self.app, view.name, view.topic_id)

    def encode(self) -> bytes:
        """Compact JSON."""
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Catalog:
        """The catalog in a record value; raises ValueError for one of a newer format."""
        found = json.loads(data)
        if found["format"] != FORMAT:
            raise ValueError(f"expected a catalog of format {FORMAT}, got {found['format']}: update this process")
        views = {
            name: CatalogView(
                **{
                    **view,
                    "key": tuple(Column(**column) for column in view["key"]),
                    "columns": tuple(Column(**column) for column in view["columns"]),
                }
            )
            for name, view in found["views"].items()
        }
        return cls(app=found["app"], views=views, format=found["format"])


@dataclass(frozen=True)
class Progress:
    """How far a view's pipeline has come, up to the end of its last batch; totals are those of the generation.

    `mode` is catching-up, live or failed. `offsets` maps topic → partition → the offset that comes next.
    `lost` counts records that retention took away before they were read.
    """

    view: str
    generation: int
    batch: int
    inputs: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    mode: str = ""
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lost: int = 0

    def encode(self) -> bytes:
        """Compact JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Progress:
        """The progress in a record value; what a newer pipeline has added to it is passed over."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(data).items() if name in known})


def catalog_topic(app: str) -> str:
    """The compacted topic that holds the catalog of an app."""
    return f"tailrace.{app}.catalog"
