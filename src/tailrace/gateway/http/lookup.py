"""Lookups: the row that a key holds now."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.responses import Response

from tailrace.contracts.position import Position
from tailrace.errors import Unreachable
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.problems import NO_KAFKA, Problem, being_restored, redis_away, unavailable
from tailrace.queries import Predicate, row_decoder
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.reader import KeyRead

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


async def look_up(
    gateway: Gateway,
    view: ServedView,
    key: bytes,
    if_none_match: str | None = None,
    restriction: Predicate | None = None,
    *,
    wait: int | None = None,
    at_least: Sequence[str] = (),
    topics: Collection[str] | None = None,
) -> Response:
    """The row, or 304 if the client has it. Raises a Problem if there is no row, or if that can't be known.

    restriction: what a row must match; any other row does not exist for this client.
    wait: for how many seconds to wait for another answer than 304 or, without `if_none_match`, than 404.
    at_least: records of source topics that the view must have taken in; the answer waits for that instead.
    topics: the topics that the client may know of, all if None.
    """
    try:
        if at_least:
            records = [SourceRecord.parse(text, view, topics) for text in at_least]
            visible = None if restriction is None else partial(seen, view=view, restriction=restriction)
            watched = TakenIn(gateway, view, key, records, visible, topics)
            held = await _taken_in(gateway, view, key, watched, WAIT if wait is None else wait)
        elif wait:
            held = await _changed(gateway, view, key, if_none_match, restriction, wait)
        else:
            held = await gateway.reads.held(view, key)
    except Unavailable as error:
        raise redis_away(error) from None
    headers = {"Preference-Applied": f"wait={wait}"} if wait is not None else {}
    return _answer(view, key, held, if_none_match, restriction, headers)


async def _changed(
    gateway: Gateway,
    view: ServedView,
    key: bytes,
    if_none_match: str | None,
    restriction: Predicate | None,
    wait: int,
) -> KeyRead:
    partition = view.partition(key)

    def news(held: KeyRead) -> bool:
        row = held.row
        if not held.whole:
            return True
        there = row is not None and row.value is not None and seen(row, view, restriction)
        if row is None or not there or if_none_match is None:
            return there is (if_none_match is None)
        return not matches(if_none_match, etag(view, partition, row))

    return await gateway.waits.until(view, key, lambda: gateway.reads.held(view, key), news, wait)


async def _taken_in(gateway: Gateway, view: ServedView, key: bytes, watched: TakenIn, wait: int) -> KeyRead:
    held = await gateway.waits.until(view, key, watched.read, lambda found: found is not None, wait)
    if held is None:
        raise watched.problem(wait)
    return held


def _answer(
    view: ServedView,
    key: bytes,
    held: KeyRead,
    if_none_match: str | None,
    restriction: Predicate | None,
    headers: Mapping[str, str],
) -> Response:
    if not held.whole:
        raise being_restored(view.name, held.offset, held.target)
    row = held.row
    if row is None or row.value is None or not seen(row, view, restriction):
        columns = [column.name for column in view.key]
        raise Problem(
            404,
            "unknown key",
            headers=headers,
            view=view.name,
            key=key.decode(),
            expected=f"a value of {columns[0]}" if len(columns) == 1 else f"a JSON array of {', '.join(columns)}",
            remedy="Check the key, or follow its events: a row may come yet.",
        )
    tag = etag(view, view.partition(key), row)
    headers = {"ETag": tag, "Cache-Control": "no-cache", **headers}
    if matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(row.value, headers=headers, media_type="application/json")


def seen(row: StoredRow, view: ServedView, restriction: Predicate | None) -> bool:
    """Whether the rights of a client let it see a row. Any other row does not exist for it."""
    if restriction is None or row.value is None:
        return True
    found = row_decoder(view.columns)(row.value)
    return found is not None and restriction.matches(found, int(time.time() * 1000))


def etag(view: ServedView, partition: int, row: StoredRow) -> str:
    """A row's position, as an entity tag."""
    return f'"{Position(view.lineage, row.generation, {partition: row.offset})}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether an `If-None-Match` header names this entity tag; weak and strong ones compare equal."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag.strip('"') in _TAG.findall(if_none_match)


# How long a lookup waits if the client does not say, in seconds.
WAIT = 10
# Seconds between two looks at a store that is about to reach the changelog's end.
_SOON = 0.05
_RECORD = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249}):(?P<partition>[0-9]{1,6}):(?P<offset>[0-9]{1,18})", re.ASCII)


@dataclass(frozen=True)
class SourceRecord:
    """A record of a topic that a view is computed from."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str, view: ServedView, named: Collection[str] | None = None) -> SourceRecord:
        """The record that `at_least` names. Raises a Problem if the view has no such source.

        named: the topics that the client may know of, all if None.
        """
        found = _RECORD.fullmatch(text)
        if found is None or found["topic"] not in view.sources:
            raise Problem(
                400,
                "unusable at_least",
                expected=[f"{topic}:partition:offset" for topic in view.sources if named is None or topic in named]
                or "topic:partition:offset of a topic that the view is computed from",
                got=text[:200],
                remedy="Take topic, partition and offset from the answer to POST /topics/{topic}/events.",
            )
        return cls(found["topic"], int(found["partition"]), int(found["offset"]))


class TakenIn:
    """Watches until a view has taken in some records, as far as one key goes. `why` says what is missing.

    visible: whether the client may see a row; None if it may see any. Hidden rows and tombstones prove nothing:
    the row before a tombstone may have been hidden.
    named: the topics that the client may know of, all if None.
    """

    def __init__(
        self,
        gateway: Gateway,
        view: ServedView,
        key: bytes,
        records: list[SourceRecord],
        visible: Callable[[StoredRow], bool] | None = None,
        named: Collection[str] | None = None,
    ) -> None:
        self._visible = visible
        self._named = named
        self._gateway = gateway
        self._view = view
        self._key = key
        self._left = records
        self._end: int | None = None
        self.why = ""

    async def read(self) -> KeyRead | None:
        """What the key holds, once everything is taken in; None until then."""
        view, waits = self._view, self._gateway.waits
        held = await self._gateway.reads.held(view, self._key)
        if self._tells(held.row):
            self._left = [one for one in self._left if not by_version(view, held, one)]
        if not self._left:
            return held
        reasons = (behind(self._gateway.known, view, one) for one in self._left)
        if why := next(filter(None, reasons), ""):
            self.why = why
            return None
        if self._end is None:
            await self._ask_end()
        if self._end is not None:
            if reached(view, held, self._end - 1):
                return held
            self.why = f"the store has not reached offset {self._end - 1} of {view.changelog}"
        # No message says that a partition has moved on.
        channel = self._gateway.reader.channel(view.name, view.partition(self._key), view.lineage, self._key)
        asyncio.get_running_loop().call_later(_SOON, waits.hear, channel)
        return None

    def problem(self, seconds: float) -> Problem:
        """What a client is told if its wait was too short."""
        return unavailable(
            "not taken in yet",
            "Ask again. A view that counts or joins tells at the end of a batch what it has taken in: see "
            "--batch-interval; a view of the latest event by the record key tells at once.",
            view=self._view.name,
            at_least=[str(one) for one in self._left],
            expected=f"the view to have taken it in within {seconds:g} s",
            got=(self.why if self._is_open else "") or "no news of the view",
        )

    @property
    def _is_open(self) -> bool:
        """Whether the client may know how far topics are."""
        return self._named is None or (self._visible is None and all(one.topic in self._named for one in self._left))

    def _tells(self, row: StoredRow | None) -> bool:
        if self._visible is None or row is None:
            return True
        return row.value is not None and self._visible(row)

    async def _ask_end(self) -> None:
        ends, view = self._gateway.ends, self._view
        try:
            self._end = await asyncio.to_thread(ends.end, view.changelog, view.partition(self._key))
        except Unreachable:
            self.why = f"Kafka: {NO_KAFKA}"


def by_version(view: ServedView, held: KeyRead, record: SourceRecord) -> bool:
    """Whether the row by itself proves that a record was taken in.

    A row of a later version from another partition proves it, too: a key's records are in one partition.
    """
    return view.by_offset and held.whole and held.row is not None and held.row.version > record.offset


def reached(view: ServedView, held: KeyRead, offset: int) -> bool:
    """Whether a read is of the build that the catalog names, from a store that has reached the offset."""
    of_build = held.generation is None or held.generation == view.generation
    return of_build and held.whole and held.offset is not None and held.offset >= offset


def behind(known: ServedCatalog, view: ServedView, record: SourceRecord) -> str:
    """Why the view's last batch is not known to have taken in a record; empty if it has."""
    progress = known.progress.get(view.name)
    if progress is None or progress.generation != view.generation:
        return "the view has not finished a batch yet"
    reached = progress.processed.get(record.topic, {}).get(record.partition)
    if reached is None or reached <= record.offset:
        at = "before the first record" if not reached else f"at offset {reached - 1}"
        return f"the view's last batch ended {at} of {record.topic}:{record.partition}"
    return ""
