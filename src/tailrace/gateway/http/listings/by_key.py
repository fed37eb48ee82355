"""Listings of some keys: a query that only rows of certain keys can match is answered by reading these."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tailrace.gateway.catalog import KnownView
from tailrace.gateway.http.listings.page import Place
from tailrace.gateway.http.listings.scan import Found, Matches, Moved, choose
from tailrace.gateway.live.keys.reads import Reads
from tailrace.queries import Predicate
from tailrace.store.layout.stored import Stored
from tailrace.store.read.reader import Held


def asked_keys(view: KnownView, predicates: Sequence[Predicate]) -> list[bytes] | None:
    """The keys that every row which matches has one of; None where it may be any."""
    if len(view.key) != 1:
        return None
    name = view.key[0].name
    asked = [predicate.equal[name] for predicate in predicates if name in predicate.equal]
    if not asked:
        return None
    return [_text(value) for value in frozenset.intersection(*asked)]


async def pick(reads: Reads, view: KnownView, place: Place, keys: Sequence[bytes], matches: Matches | None) -> Found:
    """The one page of a listing of some keys. Raises Moved, and Unavailable."""
    held = await reads.all(view, keys)
    return await asyncio.to_thread(_found, view, place, dict(zip(keys, held, strict=True)), matches)


def _found(view: KnownView, place: Place, held: dict[bytes, Held], matches: Matches | None) -> Found:
    found = Found()
    for key, one in held.items():
        partition = view.partition(key)
        generation = one.generation if one.generation is not None else place.generation
        if not one.whole or generation != place.generation or (one.offset or 0) < place.offsets[partition]:
            raise Moved(partition, Stored(one.offset, one.target, one.generation))
        if one.row is not None:
            chosen = choose({key: one.row}, replace(place, partition=partition), matches)
            for name, gone in chosen.items():
                found.add(name, one.row, gone=gone)
    return found


def _text(value: object) -> bytes:
    """A value as the key of a row has it."""
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode("utf-8", "surrogatepass")
