"""The catalog: what the other processes know of an app without Spark and without its module.

The pipeline writes it, after Spark's analysis, to the compacted topic `tailrace.<app>.catalog`; the
materializer copies it to Redis; the gateway reads it there. So it survives the loss of Redis.

The topic's records by key:

    app                   the catalog
    progress/<view>       how far a view's pipeline has come
    building/<view>       the same for the build that is to replace it
    dead-letters/<topic>  how far the search for bad records of a topic has come
    request/<view>        see `requests`
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from tailrace.contracts.position import lineage
from tailrace.contracts.typed import check, fits, read_object
from tailrace.errors import CatalogError, NewerFormat

FORMAT = 1
APP_RECORD = "app"
PROGRESS_RECORDS = "progress/"
BUILDING_RECORDS = "building/"
DEAD_LETTER_RECORDS = "dead-letters/"

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MOST_PARTITIONS = 1_000_000
# What decoding raises for a record that somebody else made.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_Entry = TypeVar("_Entry", "CatalogView", "CatalogFeed", "CatalogTopic")


@dataclass(frozen=True)
class Column:
    """A column's name and its Spark SQL type, such as `bigint`."""

    name: str
    type: str


@dataclass(frozen=True)
class CatalogView:
    """One build of a view, as other processes see it.

    `sources` maps each source topic to its Kafka id; `starts` says where the build began to read, topic → partition →
    offset, and is empty if it began at the earliest records.
    `next` is the build that is being made to replace this one: its rows are kept back until it is done. Then it takes
    this place, and `since` says per changelog partition which offset a store must have reached to serve it.
    `schemas` are those of a registry with which it reads its topics: topic → (value, key).
    `by_offset` says that a row's version is one more than the offset of its record.
    `parents` are the generations of the views that it reads, and `reads` the columns that these had.
    `counts` are the partitions of the topics whose order within a partition matters; those of `spread` got more
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
        """The view in decoded JSON. Ignores what a newer pipeline has added."""
        held = found.get("next")
        return _checked(cls(**{**_known(cls, found), "next": cls.decode(held) if held is not None else None}))


@dataclass(frozen=True)
class CatalogFeed:
    """A feed, as other processes see it: its changelog holds every event, by the key of the client it is for.

    `hold` is how many seconds a client's events are kept after it has left; `retain` is `listening` or `always`.
    `length` and `age`, in seconds, limit what is kept for one client. `ordered` says that every source record gives one
    event at most, and that events of a source partition are in the changelog in its order. `reset` is the generation
    that a reset has begun, 0 before the first: from then on, earlier events are sent again.
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
        """The feed in decoded JSON. Ignores what a newer pipeline has added."""
        return _checked(cls(**_known(cls, found)))


@dataclass(frozen=True)
class CatalogTopic:
    """A declared topic or table, as other processes see it.

    `columns` are the fields of the value; `key_columns` those that the record key becomes, empty for a topic of events.
    `key` is what the record key decodes to: one column without a name for a plain key, or its fields.
    `accept` says that the gateway takes events for it. `schema` and `key_schema` are the schemas that Avro values and
    keys are written with; with a `registry`, the registry has them.
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
        """The topic in decoded JSON. Ignores what a newer pipeline has added."""
        known = {field.name for field in fields(cls)}
        made = cls(
            **{
                **{name: value for name, value in found.items() if name in known},
                "columns": tuple(Column(**column) for column in found["columns"]),
                "key": tuple(Column(**column) for column in found.get("key", ())),
                "key_columns": tuple(found.get("key_columns", ())),
            }
        )
        check(made)
        return made


def _known(kind: type[CatalogView | CatalogFeed], found: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(kind)}
    return {
        **{name: value for name, value in found.items() if name in known},
        "key": tuple(Column(**column) for column in found["key"]),
        "columns": tuple(Column(**column) for column in found["columns"]),
        "schemas": {topic: (value, key) for topic, (value, key) in found.get("schemas", {}).items()},
    }


_Build = TypeVar("_Build", CatalogView, CatalogFeed)


def _checked(entry: _Build) -> _Build:
    """The view or feed, if other processes can use it. Raises ValueError."""
    check(entry)
    if _TOPIC.fullmatch(entry.changelog) is None:
        raise ValueError(f"expected the name of a topic as `changelog`, got {entry.changelog[:40]!r}")
    if not 0 < entry.partitions <= _MOST_PARTITIONS or entry.generation < 0:
        raise ValueError(f"expected partitions and a generation, got {entry.partitions} and {entry.generation}")
    return entry


@dataclass(frozen=True)
class Catalog:
    """An app as other processes see it. `refused` are entries that could not be read, and why."""

    app: str
    views: Mapping[str, CatalogView]
    feeds: Mapping[str, CatalogFeed] = field(default_factory=dict)
    format: int = FORMAT
    topics: Mapping[str, CatalogTopic] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict, compare=False)

    def lineage(self, view: CatalogView | CatalogFeed) -> str:
        """The beginning of this view's positions."""
        return lineage(self.app, view.name, view.topic_id)

    def encode(self) -> bytes:
        """Compact JSON."""
        found = asdict(self)
        del found["refused"]
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes, before: Catalog | None = None) -> Catalog:
        """The catalog in a record value. Raises NewerFormat for a newer format, CatalogError for anything else.

        An entry that can't be read is taken from the catalog `before`, or left out; the others stay as they are.
        """
        try:
            found = read_object(data)
        except ValueError as error:
            raise CatalogError(f"the catalog: {error}") from None
        written = found.get("format")
        if type(written) is int and written > FORMAT:
            raise NewerFormat(f"expected a catalog of format {FORMAT}, got {str(written)[:40]}: update this process")
        if written != FORMAT:
            raise CatalogError(f"expected a catalog of format {FORMAT}, got {str(written)[:40]}")
        refused: dict[str, str] = {}
        held = before or cls("", {})
        # Each changelog belongs to one view or feed: another would take its rows away.
        taken: dict[str, str] = {}
        views = _entries(found, "views", CatalogView.decode, held.views, refused, taken)
        feeds = _entries(found, "feeds", CatalogFeed.decode, held.feeds, refused, taken)
        topics = _entries(found, "topics", CatalogTopic.decode, held.topics, refused, taken)
        app = found.get("app")
        if not fits(app, str):
            raise CatalogError(f"the catalog: expected `app` as a name, got {str(app)[:40]}")
        return cls(str(app), views, feeds, topics=topics, refused=refused)


def _entries(
    found: Mapping[str, Any],
    kind: str,
    decode: Callable[[Mapping[str, Any]], _Entry],
    before: Mapping[str, _Entry],
    refused: dict[str, str],
    taken: dict[str, str],
) -> dict[str, _Entry]:
    entries = found.get(kind, {})
    if not isinstance(entries, dict):
        raise CatalogError(f"the catalog: expected `{kind}` as an object, got {str(entries)[:40]}")
    made: dict[str, _Entry] = {}
    for name, entry in entries.items():
        try:
            one = decode(entry)
            if one.name != name or not fits(name, str):
                raise ValueError(f"expected the name {name[:40]!r}, got {one.name[:40]!r}")
            if not _takes(one, taken):
                raise ValueError("expected a changelog of its own, got that of another")
            made[name] = one
        except _UNREADABLE as error:
            refused[f"{kind}/{name}"] = str(error) or type(error).__name__
            if name in before and _takes(before[name], taken):
                made[name] = before[name]
    return made


def _takes(entry: CatalogView | CatalogFeed | CatalogTopic, taken: dict[str, str]) -> bool:
    """Whether no other entry has the same changelog. From now on it belongs to this one."""
    return isinstance(entry, CatalogTopic) or taken.setdefault(entry.changelog, entry.name) == entry.name


@dataclass(frozen=True)
class ViewProgress:
    """How far a view's pipeline has come, up to the end of its last batch. Totals are those of the generation.

    `mode` is catching-up, live, micro-batch or failed. `offsets` maps topic → partition → the offset that comes next.
    `lost` counts records that retention took away before they were read, `unseen` batches that ended while nobody
    watched: what they skipped is not in the totals. `topic_id` is the Kafka id of a topic that is searched for dead
    letters. `base` is added to versions: it rises if a replay may bring fewer records than were served.
    `gap` is the batch that must end before records that retention removed are behind it.
    `as_of` is a time, in ms since 1970: everything written before it has been read. `degraded` are the reasons for
    which some rows may be stale, a sentence each. `state` is how large the state was when the last batch ended: its
    use (`rows` or `dedupe`) → bytes on `disk` and in `memory`.
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
    def decode(cls, data: bytes) -> ViewProgress:
        """The progress in a record value. Raises CatalogError for anything else.

        Ignores what a newer pipeline has added.
        """
        known = {field.name for field in fields(cls)}
        try:
            found = {name: value for name, value in read_object(data).items() if name in known}
            made = cls(**{**found, "degraded": tuple(found.get("degraded") or ())})
            check(made)
            # Its partitions are numbers.
            _ = made.processed
        except _UNREADABLE as error:
            raise CatalogError(f"expected progress, got {data[:40]!r}: {error}") from None
        return made


def catalog_topic(app: str) -> str:
    """The compacted topic that holds the catalog of an app."""
    return f"tailrace.{app}.catalog"
