"""What the gateway knows of the app: the views and feeds of the newest catalog it has read."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tailrace.contracts.catalog import (
    APP_RECORD,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogTopic,
    CatalogView,
    Column,
    ViewProgress,
)
from tailrace.contracts.partitions import partition_of
from tailrace.store.layout.feed_keys import FeedPlace

log = logging.getLogger(__name__)

# Partitions of keys up to this many bytes are cached: each is needed several times while a client comes in, and
# takes some microseconds to compute.
_SHORT = 128
_WHOLE_TYPES = frozenset(("tinyint", "smallint", "int", "bigint"))
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServedView:
    """One build of a view. Builds that are equal accept each other's positions.

    `columns` are all columns of a row, those of the key first. `sources` are the topics that it is computed from.
    With `by_offset`, a row's version is the offset of its source record plus one.
    """

    name: str
    lineage: str
    generation: int
    partitions: int
    key: tuple[Column, ...]
    columns: tuple[Column, ...] = field(default=(), compare=False)
    changelog: str = field(default="", compare=False)
    sources: tuple[str, ...] = field(default=(), compare=False)
    by_offset: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, catalog: Catalog, view: CatalogView) -> ServedView:
        key = {column.name for column in view.key}
        return cls(
            name=view.name,
            lineage=catalog.lineage(view),
            generation=view.generation,
            partitions=view.partitions,
            key=view.key,
            columns=(*view.key, *(column for column in view.columns if column.name not in key)),
            changelog=view.changelog,
            sources=tuple(view.sources),
            by_offset=view.by_offset,
        )

    def partition(self, key: bytes) -> int:
        """The changelog partition that holds a key."""
        return _partition(key, self.partitions) if len(key) <= _SHORT else partition_of(key, self.partitions)

    def key_object(self, key: bytes) -> bytes:
        """A key as a JSON object of the key columns: numbers as numbers. Bytes that are not UTF-8 are replaced."""
        text = key.decode(errors="replace")
        names = [column.name for column in self.key]
        if len(names) == 1:
            return b"{%b:%b}" % (_json(names[0]), _typed(text, self.key[0].type))
        try:
            values = json.loads(text)
            if isinstance(values, list) and len(values) == len(names):
                return _json(dict(zip(names, values, strict=True)))
        except (ValueError, RecursionError):
            # It is not JSON, has half a character, or is nested too deep to be read or written.
            pass
        return _json({"key": text})  # no row can have this key


@dataclass(frozen=True, slots=True)
class ServedFeed:
    """A feed as the catalog declares it."""

    entry: CatalogFeed
    lineage: str

    @property
    def name(self) -> str:
        return self.entry.name

    def partition(self, client: bytes) -> int:
        """The changelog partition that holds a client's events."""
        return partition_of(client, self.entry.partitions)

    def place(self, client: bytes) -> FeedPlace:
        """Where the store holds a client's events."""
        return FeedPlace(self.entry, self.partition(client), self.lineage)

    def continues(self, other: ServedFeed) -> bool:
        """Whether positions of `other` are valid here: a new generation goes on in the same changelog."""
        return (self.lineage, self.entry.partitions) == (other.lineage, other.entry.partitions)


class ServedCatalog:
    """The newest catalog and the progress of its views. It forgets nothing that Redis loses."""

    def __init__(self) -> None:
        self.views: Mapping[str, ServedView] = {}
        self.feeds: Mapping[str, ServedFeed] = {}
        self.catalog: Catalog | None = None
        self.topics: Mapping[str, CatalogTopic] = {}
        self.progress: Mapping[str, ViewProgress] = {}
        self.loaded = False
        self.problem: str | None = None
        # Called once for each part of a catalog that can't be read. That part is logged, and stays what it was.
        self.failed: Callable[[], None] = lambda: None
        self._told: set[str] = set()

    def load(self, records: Mapping[str, bytes]) -> set[str]:
        """Take in the records of the catalog; returns the views that were rebuilt or removed.

        Records that Redis lacks change nothing: an emptied Redis is restored from Kafka.
        """
        found = records.get(APP_RECORD)
        if found is None:
            return set()
        try:
            catalog = Catalog.decode(found, self.catalog)
        except ValueError as error:
            self.problem = f"the catalog can't be read: {error}"
            self._tell({self.problem})
            return set()
        unreadable = {f"{name} can't be read: {why}" for name, why in catalog.refused.items()}
        progress = []
        for name, value in records.items():
            if name.startswith(PROGRESS_RECORDS):
                try:
                    progress.append(ViewProgress.decode(value))
                except ValueError as error:
                    unreadable.add(f"{name} can't be read: {error}")
        self._tell(unreadable)
        views = {view.name: ServedView.of(catalog, view) for view in catalog.views.values()}
        changed = {name for name, view in self.views.items() if views.get(name) != view}
        if views != self.views:
            log.info("catalog=loaded views=%s changed=%s", ",".join(sorted(views)), ",".join(sorted(changed)) or "-")
        self.views, self.progress = views, {one.view: one for one in progress}
        self.feeds = {feed.name: ServedFeed(feed, catalog.lineage(feed)) for feed in catalog.feeds.values()}
        if catalog != self.catalog:
            self.catalog = catalog
        self.topics = catalog.topics
        self.loaded, self.problem = True, None
        return changed

    def _tell(self, problems: set[str]) -> None:
        """Log what can't be read, unless the last load has logged it."""
        for problem in problems - self._told:
            log.error("catalog=unreadable error=%r", problem[:500])
            self.failed()
        self._told = problems

    def partitions(self) -> list[tuple[str, int, str]]:
        """Every (view or feed, partition, lineage) of the app."""
        views = [(view.name, p, view.lineage) for view in self.views.values() for p in range(view.partitions)]
        feeds = [(feed.name, p, feed.lineage) for feed in self.feeds.values() for p in range(feed.entry.partitions)]
        return views + feeds


@lru_cache(maxsize=16384)
def _partition(key: bytes, partitions: int) -> int:
    return partition_of(key, partitions)


def _typed(text: str, kind: str) -> bytes:
    if kind in _WHOLE_TYPES and _WHOLE.fullmatch(text):
        return text.encode()
    if (kind in ("float", "double") or kind.startswith("decimal")) and _NUMBER.fullmatch(text):
        return text.encode()
    if kind == "boolean" and text in ("true", "false"):
        return text.encode()
    return _json(text)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
