"""Lookups: the row that a key holds now."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from starlette.responses import Response

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import KnownView
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.http.at_least import WAIT, SourceRecord, TakenIn
from tailrace.gateway.problems import Problem, redis_away, unavailable
from tailrace.queries import Predicate, row_decoder
from tailrace.store.layout.row import Row
from tailrace.store.read.reader import Held, Unavailable

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


async def look_up(
    gateway: Gateway,
    view: KnownView,
    key: bytes,
    if_none_match: str | None = None,
    restriction: Predicate | None = None,
    *,
    wait: int | None = None,
    at_least: Sequence[str] = (),
    topics: Collection[str] | None = None,
) -> Response:
    """The row, or 304 if the client has it; raises a Problem if there is none, or nobody can know.

    restriction: what a row must match to be there for this client.
    wait: for how many seconds to wait for another answer than 304 or, without `if_none_match`, than 404.
    at_least: records of source topics that the view must have taken in; the answer waits for that instead.
    topics: those that the client may know of, all if None.
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
    view: KnownView,
    key: bytes,
    if_none_match: str | None,
    restriction: Predicate | None,
    wait: int,
) -> Held:
    partition = view.partition(key)

    def news(held: Held) -> bool:
        row = held.row
        if not held.whole:
            return True
        there = row is not None and row.value is not None and seen(row, view, restriction)
        if row is None or not there or if_none_match is None:
            return there is (if_none_match is None)
        return not matches(if_none_match, etag(view, partition, row))

    return await gateway.waits.until(view, key, lambda: gateway.reads.held(view, key), news, wait)


async def _taken_in(gateway: Gateway, view: KnownView, key: bytes, watched: TakenIn, wait: int) -> Held:
    held = await gateway.waits.until(view, key, watched.read, lambda found: found is not None, wait)
    if held is None:
        raise watched.problem(wait)
    return held


def _answer(
    view: KnownView,
    key: bytes,
    held: Held,
    if_none_match: str | None,
    restriction: Predicate | None,
    headers: Mapping[str, str],
) -> Response:
    if not held.whole:
        raise unavailable(
            "being restored",
            "Ask again in a moment; if it lasts, see whether the materializer runs.",
            view=view.name,
            offset=held.offset,
            target=held.target,
        )
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


def seen(row: Row, view: KnownView, restriction: Predicate | None) -> bool:
    """Whether the rights of a client let it see a row; one that they do not is as if it were not there."""
    if restriction is None or row.value is None:
        return True
    found = row_decoder(view.columns)(row.value)
    return found is not None and restriction.matches(found, int(time.time() * 1000))


def etag(view: KnownView, partition: int, row: Row) -> str:
    """A row's position, as an entity tag."""
    return f'"{Position(view.lineage, row.generation, {partition: row.offset})}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether an `If-None-Match` header names this entity tag; weak and strong ones compare equal."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag.strip('"') in _TAG.findall(if_none_match)
