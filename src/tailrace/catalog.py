"""The catalog: what the other processes know of an app without Spark and without its module.

The pipeline writes it, after Spark's analysis, to the compacted topic `tailrace.<app>.catalog`; the
materializer copies it to Redis; the gateway reads it there. So it survives the loss of Redis.
The topic's records: key `app` → the catalog; key `progress/<view>` → how far a view's pipeline has come;
`building/<view>` → the same of the build that is to take its place; `dead-letters/<topic>` → how far the search for bad
records of a topic has come; `request/<view>` → see `requests`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tailrace.position import lineage

FORMAT = 1
APP_RECORD = "app"
PROGRESS_RECORDS = "progress/"
BUILDING_RECORDS = "building/"
DEAD_LETTER_RECORDS = "dead-letters/"


@dataclass(frozen=True)
class Column:
    """A column's name and its Spark SQL type, such as `bigint`."""

    name: str
    type: str


@dataclass(frozen=True)
class CatalogView:
    """One build of a view, as other processes see it.

    `sources` maps each source topic to its Kafka id; `starts` says where the build began to read, topic → partition →
    offset, and is empty where it began at the earliest records.
    `next` is the build that is being made to take this one's place: its rows are kept back until it is done. Then it
    stands here itself, and `since` says per changelog partition which offset a store must have reached to serve it.
    `schemas` are those of a registry that it reads its topics with: topic → (value, key).
    `by_offset` says that a row's version is one more than the offset of the record that it was made of.
    `parents` are the generations of the views that it reads, and `reads` the columns that these had.
    `counts` are the partitions of the topics in which the order within a partition decides; those of `spread` got more
    partitions since their first records, so that a key may be in several of them: topic → how many there are.
    `versioning` is the rule that versions are made by.
    """

    name: str
    changelog: str
    topic_id: str
    partitions: int
    generation: int
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    definition: Mapping[str, object]
    sources: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    schemas: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    next: CatalogView | None = None
    by_offset: bool = False
    parents: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    spread: Mapping[str, int] = field(default_factory=dict)
    versioning: int = 1

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> CatalogView:
        """The view in decoded JSON; what a newer pipeline has added to it is passed over."""
        held = found.get("next")
        return cls(**{**_known(cls, found), "next": cls.decode(held) if held is not None else None})


@dataclass(frozen=True)
class CatalogFeed:
    """A feed, as other processes see it: its changelog holds every event, by the key of the client it is for.

    `hold` is for how many seconds a feed is kept after its last listener has left; `retain` is `listening` or `always`.
    `length` and `age`, in seconds, limit what is kept for one client. `ordered` says that every source record gives one
    event at most, and that those of a source partition stand in the changelog in its order. `reset` is the generation
    that was begun by a reset, 0 before the first: events of before are sent again from then on.
    """

    name: str
    changelog: str
    topic_id: str
    partitions: int
    generation: int
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    definition: Mapping[str, object]
    sources: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    hold: float = 0.0
    retain: str = "listening"
    length: int = 10_000
    age: float = 86_400.0
    ordered: bool = False
    reset: int = 0

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> CatalogFeed:
        """The feed in decoded JSON; what a newer pipeline has added to it is passed over."""
        return cls(**_known(cls, found))


@dataclass(frozen=True)
class CatalogTopic:
    """A declared topic or table, as other processes see it: what its records are made of.

    `columns` are the fields of the value; `key_columns` those that the record key becomes, empty for a topic of events.
    `key` is what the record key decodes to: one column without a name for a plain key, or its fields.
    `accept` says that the gateway takes events for it. `schema` and `key_schema` are what Avro values and keys are
    written with; with a `registry`, it has them.
    """

    name: str
    format: str
    columns: tuple[Column, ...]
    key_format: str = "string"
    key: tuple[Column, ...] = ()
    key_columns: tuple[str, ...] = ()
    accept: bool = False
    schema: str | None = None
    key_schema: str | None = None
    registry: bool = False

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> CatalogTopic:
        """The topic in decoded JSON; what a newer pipeline has added to it is passed over."""
        known = {field.name for field in fields(cls)}
        return cls(
            **{
                **{name: value for name, value in found.items() if name in known},
                "columns": tuple(Column(**column) for column in found["columns"]),
                "key": tuple(Column(**column) for column in found.get("key", ())),
                "key_columns": tuple(found.get("key_columns", ())),
            }
        )


def _known(kind: type[CatalogView | CatalogFeed], found: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(kind)}
    return {
        **{name: value for name, value in found.items() if name in known},
        "key": tuple(Column(**column) for column in found["key"]),
        "columns": tuple(Column(**column) for column in found["columns"]),
        "schemas": {topic: (value, key) for topic, (value, key) in found.get("schemas", {}).items()},
    }


@dataclass(frozen=True)
class Catalog:
    """An app as other processes see it."""

    app: str
    views: Mapping[str, CatalogView]
    feeds: Mapping[str, CatalogFeed] = field(default_factory=dict)
    format: int = FORMAT
    topics: Mapping[str, CatalogTopic] = field(default_factory=dict)

    def lineage(self, view: CatalogView | CatalogFeed) -> str:
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
        views = {name: CatalogView.decode(view) for name, view in found["views"].items()}
        feeds = {name: CatalogFeed.decode(feed) for name, feed in found.get("feeds", {}).items()}
        topics = {name: CatalogTopic.decode(topic) for name, topic in found.get("topics", {}).items()}
        return cls(app=found["app"], views=views, feeds=feeds, format=found["format"], topics=topics)


@dataclass(frozen=True)
class Progress:
    """How far a view's pipeline has come, up to the end of its last batch; totals are those of the generation.

    `mode` is catching-up, live, micro-batch or failed. `offsets` maps topic → partition → the offset that comes next.
    `lost` counts records that retention took away before they were read, `unseen` batches that ended while nobody
    watched: what they skipped is not among the totals. `topic_id` is the Kafka id of a topic that is searched for dead
    letters. `base` is what is added to versions: it rises when a replay may bring fewer records than were served.
    `gap` is the batch that must have ended before records that retention removed are behind it.
    `as_of` is a time, in ms since 1970: whatever was written before it has been read. `degraded` are the reasons for
    which some rows may be stale, a sentence each. `state` is how large the state was when the last batch ended: what it
    is for (`rows` or `dedupe`) → bytes on `disk` and in `memory`.
    """

    view: str
    generation: int
    batch: int
    inputs: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    mode: str = ""
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lost: int = 0
    topic_id: str = ""
    unseen: int = 0
    base: int = 0
    gap: int = -1
    as_of: int = 0
    degraded: Sequence[str] = ()
    state: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def processed(self) -> dict[str, dict[int, int]]:
        """`offsets` with partitions as numbers."""
        return {topic: {int(p): offset for p, offset in of.items()} for topic, of in self.offsets.items()}

    def encode(self) -> bytes:
        """Compact JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Progress:
        """The progress in a record value; what a newer pipeline has added to it is passed over."""
        known = {field.name for field in fields(cls)}
        found = {name: value for name, value in json.loads(data).items() if name in known}
        return cls(**{**found, "degraded": tuple(found.get("degraded") or ())})


def catalog_topic(app: str) -> str:
    """The compacted topic that holds the catalog of an app."""
    return f"tailrace.{app}.catalog"
