"""The distinct queries that the streams of an app have now, and the rows that they match.

Streams with the same predicate over the same view share one query; it lives as long as its last stream.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.contracts.catalog import Column
from tailrace.contracts.commands import Stream
from tailrace.queries import Predicate, QueryError, QueryIndex, parse, row_decoder

log = logging.getLogger(__name__)


@dataclass
class LiveQuery:
    """A query, its streams, and its spellings. `expires` is when the last of these expires, in ms since 1970."""

    predicate: Predicate
    streams: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    expires: int = 0


class ViewQueries:
    """The live queries of one view, by their digests, and the indexes that they are evaluated with.

    `failed` is called for a query that fails on a row; see `QueryIndex`.
    """

    def __init__(self, columns: Sequence[Column], failed: Callable[[], None] = lambda: None) -> None:
        self.columns = tuple(columns)
        self.failed = failed
        self.queries: dict[str, LiveQuery] = {}
        self.index = QueryIndex(failed)
        self.clocks = QueryIndex(failed)
        self._decode = row_decoder(self.columns)
        self._parsed: dict[str, Predicate] = {}

    def row(self, value: bytes) -> Mapping[str, Any]:
        """A row, decoded for queries; empty if it is no JSON object."""
        return self._decode(value) or {}

    def add(self, text: str, stream: Stream) -> str:
        """Give a stream its query. Returns the query's digest; raises QueryError if the text is no query."""
        predicate = self._parsed.get(text)
        if predicate is None:
            predicate = parse(text, self.columns)
        query = self.queries.get(predicate.digest)
        if query is None:
            for index in self._indexes(predicate):
                index.add(predicate.digest, predicate)
            query = self.queries[predicate.digest] = LiveQuery(predicate)
        self._parsed[text] = predicate
        query.streams.add(stream.id)
        query.texts.add(text)
        query.expires = max(query.expires, stream.expires)
        return predicate.digest

    def remove(self, digest: str, stream: str) -> None:
        """Take a stream away from its query. The query ends with its last stream."""
        query = self.queries[digest]
        query.streams.discard(stream)
        if not query.streams:
            del self.queries[digest]
            for text in query.texts:
                self._parsed.pop(text, None)
            for index in self._indexes(query.predicate):
                index.remove(digest)

    def _indexes(self, predicate: Predicate) -> Iterator[QueryIndex]:
        yield self.index
        if predicate.clock:
            yield self.clocks


class LiveQueries:
    """All streams of an app, and their queries.

    `unusable` are the streams whose query can't be used, with the reason. If a query fails in a way nobody foresaw,
    `failed` is called, the failure is logged, and the other queries go on.
    """

    def __init__(self, failed: Callable[[], None] = lambda: None) -> None:
        self._failed = failed
        self.views: dict[str, ViewQueries] = {}
        self.streams: dict[str, Stream] = {}
        self.unusable: dict[str, str] = {}
        self._changed: dict[str, set[str]] = {}
        self._digests: dict[str, str] = {}
        self._expiries: list[tuple[int, str]] = []

    def put(self, stream: Stream) -> None:
        """Take a stream as it is from now on. If its query can't be used, it has none, and the log says why."""
        before = self.streams.get(stream.id)
        if before is not None and (before.view, before.query) != (stream.view, stream.query):
            self._release(before)
        self.streams[stream.id] = stream
        heapq.heappush(self._expiries, (stream.expires, stream.id))
        self._evaluate(stream)

    def end(self, stream: str) -> None:
        """Forget a stream."""
        held = self.streams.pop(stream, None)
        self.unusable.pop(stream, None)
        if held is not None:
            self._release(held)

    def expire(self, now: int) -> None:
        """Forget the streams whose time has come."""
        while self._expiries and self._expiries[0][0] <= now:
            expires, stream = heapq.heappop(self._expiries)
            held = self.streams.get(stream)
            if held is not None and held.expires == expires:
                self.end(stream)

    def set_views(self, columns: Mapping[str, Sequence[Column]]) -> None:
        """Take the views of an app. If the columns of a view have changed, its queries are parsed again."""
        for view, held in list(self.views.items()):
            if view not in columns or held.columns != tuple(columns[view]):
                for stream in self.streams.values():
                    if stream.view == view:
                        self._release(stream)
                del self.views[view]
        for view in columns.keys() - self.views.keys():
            self.views[view] = ViewQueries(columns[view], self._failed)
            for stream in self.streams.values():
                if stream.view == view:
                    self._evaluate(stream)

    def take_changed(self) -> dict[str, set[str]]:
        """Per view, the queries that have begun, ended, or live longer since the last call."""
        found, self._changed = self._changed, {}
        return found

    def _evaluate(self, stream: Stream) -> None:
        view, text = self.views.get(stream.view), stream.query
        if view is None or text is None:
            return
        try:
            digest = view.add(text, stream)
        except QueryError as error:
            if stream.id not in self.unusable:
                log.warning("stream %s of view %s is not evaluated: %s", stream.id, stream.view, error)
            self.unusable[stream.id] = str(error)
            return
        except Exception as error:
            log.exception("stream %s of view %s is not evaluated", stream.id, stream.view)
            self._failed()
            self.unusable[stream.id] = repr(error)
            return
        self.unusable.pop(stream.id, None)
        self._digests[stream.id] = digest
        self._changed.setdefault(stream.view, set()).add(digest)

    def _release(self, stream: Stream) -> None:
        digest = self._digests.pop(stream.id, None)
        if digest is None:
            return
        self._changed.setdefault(stream.view, set()).add(digest)
        try:
            self.views[stream.view].remove(digest, stream.id)
        except Exception:
            # The query has ended already: what is left of it in an index belongs to no query.
            log.exception("query %s of view %s did not end as it should", digest, stream.view)
            self._failed()
