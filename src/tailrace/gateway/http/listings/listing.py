"""Listings: the rows of a view that match a query, page by page, with the position that they are as of.

The steps: 1 read the position, and make the entity tag of it: a client that has the same tag gets 304 without
a scan; 2 judge what the client has seen; 3 scan rows. The position comes first, so that a client that follows
from it misses nothing: what has changed during the scan is sent again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from starlette.responses import Response

from tailrace.contracts.position import Position
from tailrace.gateway.catalog import ServedView
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.http.listings.page import ScanPlace, key_number
from tailrace.gateway.http.listings.scan import ListingPage, Matches, Moved, asked_keys, pick, scan
from tailrace.gateway.http.lookup import matches as matches_tag
from tailrace.gateway.live.positions import Ahead, Later, Reset, Since, since, too_far_ahead
from tailrace.gateway.problems import Problem, being_restored, redis_away, unavailable
from tailrace.queries import Predicate, row_decoder
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.stored_position import StoredPosition

LIMIT = 100
MOST = 1000
# How often a scan that a hand-over has overtaken begins again.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Asked:
    """What a client asks for. `restriction` is what its rights add to every query.

    `in_part` says that `after` may be from a time when rights showed the client only a part. `rights` is a
    digest of who the client is and what it may see of the view: a page is good for these alone.
    """

    where: str | None = None
    limit: int = LIMIT
    page: str | None = None
    after: str | None = None
    restriction: Predicate | None = None
    in_part: bool = False
    rights: str = ""


@dataclass(frozen=True)
class _Standing:
    """How far a view is. All its partitions are whole and of one build."""

    generation: int
    stored: Sequence[StoredPosition]

    @property
    def offsets(self) -> dict[int, int]:
        return {number: one.offset if one.offset is not None else -1 for number, one in enumerate(self.stored)}

    @property
    def as_of(self) -> int | None:
        times = [one.as_of for one in self.stored]
        return min((time for time in times if time is not None), default=None) if None not in times else None


async def list_rows(gateway: Gateway, view: ServedView, asked: Asked, if_none_match: str | None) -> Response:
    """A page of a listing, or 304 if the client has it. Raises a Problem if there can be none."""
    query = (await gateway.predicates.parse(asked.where, view.columns))[1] if asked.where else None
    predicates = [predicate for predicate in (query, asked.restriction) if predicate is not None]
    clock = any(predicate.clock for predicate in predicates)
    digests = [None if one is None else one.digest for one in (query, asked.restriction)]
    bound = json.dumps([view.lineage, asked.after or "", digests, asked.rights])
    try:
        for _ in range(_ATTEMPTS):
            standing = await _standing(gateway, view)
            tag = _tag(view, standing, asked, bound)
            headers = {"Cache-Control": "no-store"} if clock else {"Cache-Control": "no-cache", "ETag": f"W/{tag}"}
            headers["Vary"] = "Authorization, Cookie"
            if not clock and matches_tag(if_none_match, tag):
                return Response(status_code=304, headers=headers)
            standing, place, reset = await _begin(gateway, view, asked, standing, bound, clock=clock)
            keys = asked_keys(view, predicates)
            try:
                if keys is not None and len(keys) <= asked.limit and asked.page is None:
                    found = await pick(gateway.reads, view, place, keys, _matches(view, predicates))
                else:
                    found = await scan(gateway.scanning, view, place, asked.limit, _matches(view, predicates))
            except Moved as moved:
                if not moved.stored.whole:
                    raise being_restored(view.name, moved.stored.offset, moved.stored.target) from None
                if asked.page is None:
                    continue
                if _generation(moved.stored, place.generation) != place.generation:
                    raise _outdated(view) from None
                raise being_restored(view.name, moved.stored.offset, moved.stored.target) from None
            if reset is not None:
                gateway.metrics.reset(reset.reason)
            following = found.place.encode(bound, await gateway.page_keys.current()) if found.place else None
            body = _body(view, place, found, following, standing.as_of, reset)
            return Response(body, headers=headers, media_type="application/json")
    except Unavailable as error:
        raise redis_away(error) from None
    raise _handed_over(view)


async def _begin(
    gateway: Gateway, view: ServedView, asked: Asked, standing: _Standing, bound: str, *, clock: bool
) -> tuple[_Standing, ScanPlace, Reset | None]:
    """Where the scan begins, and what the client is told of its position."""
    if asked.page is not None:
        place = await _signed(gateway, view, asked.page, bound)
        # What has gone is told only to a client that may see every row.
        if place is None or (place.after is not None and asked.restriction is not None):
            raise Problem(
                400,
                "unreadable page",
                expected="the `next` of an earlier page, with the same view, `where` and `after`",
                got=asked.page[:200],
                remedy="Ask without `page` for the first one.",
            )
        if place.generation != standing.generation:
            raise _outdated(view)
        return standing, place, None
    if not asked.after:
        return standing, ScanPlace(standing.generation, standing.offsets), None
    if asked.restriction is not None or asked.in_part:
        come: Since | Reset = Reset(
            "rights",
            "what has gone is told only to who may see every row, and could when it asked before: here are all that "
            "you may see",
        )
    elif clock:
        come = Reset("query", "the query has now(): what has come and gone by the clock has no position")
    else:
        standing, come = await _judged(gateway, view, asked.after, standing)
    if isinstance(come, Reset):
        return standing, ScanPlace(standing.generation, standing.offsets), come
    return standing, ScanPlace(standing.generation, standing.offsets, come.offsets), None


async def _signed(gateway: Gateway, view: ServedView, page: str, bound: str) -> ScanPlace | None:
    number = key_number(page)
    key = await gateway.page_keys.named(number) if number is not None else None
    return ScanPlace.decode(page, bound, view.partitions, key) if key is not None else None


async def _judged(
    gateway: Gateway, view: ServedView, after: str, standing: _Standing
) -> tuple[_Standing, Since | Reset]:
    """What the position is worth. If it is ahead of the store, wait for the store, as for a follower."""
    clock = asyncio.get_running_loop().time
    impatient = clock() + gateway.timing.patience
    come = since(after, view, standing.generation, standing.stored)
    if not isinstance(come, Ahead | Later):
        return standing, come
    with gateway.waits.counted():
        while clock() < impatient and not gateway.connections.draining:
            await asyncio.sleep(gateway.timing.poll)
            standing = await _standing(gateway, gateway.known.views.get(view.name, view))
            come = since(after, view, standing.generation, standing.stored)
            if not isinstance(come, Ahead | Later):
                return standing, come
    return standing, too_far_ahead(come, view, max(standing.offsets.values()))


async def _standing(gateway: Gateway, view: ServedView) -> _Standing:
    stored = await gateway.reader.stored([(view.name, number, view.lineage) for number in range(view.partitions)])
    for one in stored:
        if not one.whole:
            raise being_restored(view.name, one.offset, one.target)
    generations = {_generation(one, view.generation) for one in stored}
    if len(generations) > 1:
        raise _handed_over(view)
    return _Standing(generations.pop(), stored)


def _generation(stored: StoredPosition, known: int) -> int:
    return stored.generation if stored.generation is not None else known


def _matches(view: ServedView, predicates: Sequence[Predicate]) -> Matches | None:
    if not predicates:
        return None
    decode, now = row_decoder(view.columns), int(time.time() * 1000)

    def matches(value: bytes) -> bool:
        row = decode(value)
        return row is not None and all(predicate.matches(row, now) for predicate in predicates)

    return matches


def _tag(view: ServedView, standing: _Standing, asked: Asked, bound: str) -> str:
    """The entity tag of a page: the position and the question."""
    question = sha256("\0".join((bound, str(asked.limit), asked.page or "")).encode()).hexdigest()[:12]
    return f'"{_position(view, standing.generation, standing.offsets)}.{question}"'


def _position(view: ServedView, generation: int, offsets: Mapping[int, int]) -> Position:
    # Before the first record of a changelog there is no offset to name.
    return Position(view.lineage, generation, {number: offset for number, offset in offsets.items() if offset >= 0})


def _body(
    view: ServedView,
    place: ScanPlace,
    found: ListingPage,
    following: str | None,
    as_of: int | None,
    reset: Reset | None,
) -> bytes:
    """The page as JSON. Rows go in as they are stored."""
    parts = []
    if reset is not None:
        parts.append(b'"reset":%b' % _json({"reason": reset.reason, "message": reset.message}))
    parts.append(b'"rows":[%b]' % b",".join(row.value for row in found.rows.values() if row.value is not None))
    if place.after is not None:
        parts.append(b'"gone":[%b]' % b",".join(view.key_object(key) for key in found.gone))
    parts.append(b'"position":%b' % _json(str(_position(view, place.generation, place.offsets))))
    parts.append(b'"as_of":%b' % _json(as_of))
    parts.append(b'"next":%b' % _json(following))
    return b"{%b}" % b",".join(parts)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _handed_over(view: ServedView) -> Problem:
    return unavailable("being handed over", "Ask again in a moment: another build takes over.", view=view.name)


def _outdated(view: ServedView) -> Problem:
    return Problem(
        410,
        "outdated page",
        view=view.name,
        expected="a page of the build that is served now",
        got="one of another build",
        remedy="The view was built anew: ask without `page` for the first page.",
    )
