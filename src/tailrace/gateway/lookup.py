"""Lookups: the row that a key holds now."""

from __future__ import annotations

import re
import time

from starlette.responses import Response

from tailrace.gateway.gateway import Gateway
from tailrace.gateway.known import KnownView
from tailrace.gateway.problems import Problem, unavailable
from tailrace.position import Position
from tailrace.queries import Predicate, row_decoder
from tailrace.store.reader import Unavailable
from tailrace.store.row import Row

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


async def look_up(
    gateway: Gateway, view: KnownView, key: bytes, if_none_match: str | None, restriction: Predicate | None = None
) -> Response:
    """The row, or 304 where the client has it; raises a Problem where there is none, or nobody can know."""
    try:
        held = await gateway.reads.held(view, key)
    except Unavailable as error:
        raise unavailable(
            "Redis is unavailable", "Ask again in a moment; if it lasts, see whether Redis runs.", got=str(error)[:200]
        ) from None
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
            view=view.name,
            key=key.decode(),
            expected=f"a value of {columns[0]}" if len(columns) == 1 else f"a JSON array of {', '.join(columns)}",
            remedy="Check the key, or follow its events: a row may come yet.",
        )
    tag = etag(view, view.partition(key), row)
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(row.value, headers=headers, media_type="application/json")


def seen(row: Row, view: KnownView, restriction: Predicate | None) -> bool:
    """Whether the rights of a client let it see a row; one that they do not is as if it were not there."""
    if restriction is None or row.value is None:
        return True
    found = row_decoder(view.columns)(row.value)
    return isinstance(found, dict) and restriction.matches(found, int(time.time() * 1000))


def etag(view: KnownView, partition: int, row: Row) -> str:
    """A row's position, as an entity tag."""
    return f'"{Position(view.lineage, row.generation, {partition: row.offset})}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether an `If-None-Match` header names this entity tag; weak and strong ones compare equal."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag.strip('"') in _TAG.findall(if_none_match)
