"""Every surface shows the same rows, whatever the rights and the rows are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.access.identity import Identity
from tailrace.access.rights import Rights, RightsError, read_document
from tailrace.contracts.catalog import Column
from tailrace.gateway.catalog import ServedCatalog, ServedFeed, ServedView
from tailrace.gateway.guard.authorizer import Authorizer
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.requests import FollowKeys, FollowQuery
from tailrace.gateway.problems import Problem
from tailrace.queries import parse

TEXTS = st.sampled_from(["", "a", "ab", "a%", "a_", "a'b", "\\", "*", "7", "0007", "-7", "true", '["a",7]', "[", "ä\n"])
NUMBERS = st.sampled_from([-7, 0, 7, 70, 2**53 + 1])
VALUES = {"string": TEXTS, "bigint": NUMBERS, "boolean": st.booleans()}
PATTERNS = st.sampled_from(
    [
        "*",
        "a",
        "a*",
        "a%",
        "a_*",
        "{sub}",
        "{sub}*",
        "{sub:integer}",
        "{teams}",
        "{none}",
        "7",
        "0007",
        "7*",
        "-0",
        "true",
    ]
)
FILTERS = st.sampled_from(
    ["owner = {sub}", "owner <> {sub}", "owner not in ({teams})", "owner in ({none})", "owner <> '{sub}'", "owner = 1"]
)
CLAIMS = st.fixed_dictionaries(
    {
        "sub": TEXTS,
        "teams": st.sampled_from([["a", "ab"], ["a", ""], [], ["a", None], "a", ["a"] * 1001, 7]),
    }
)


class Remembered:
    """What the store remembers, in a set."""

    def __init__(self) -> None:
        self.held: set[tuple[str, str]] = set()

    async def add(self, user: str, view: str) -> None:
        """Remember it."""
        self.held.add((user, view))

    async def includes(self, user: str, view: str) -> bool:
        """Whether it was added."""
        return (user, view) in self.held


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[Column, ...], list[dict[str, Any]], object, dict[str, Any]]:
    """The columns of a key, rows, what rights say of the view, and claims."""
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2))
    key = tuple(Column(f"k{n}", type) for n, type in enumerate(types))
    row = st.fixed_dictionaries({column.name: VALUES[column.type] for column in key} | {"owner": TEXTS | st.none()})
    patterns = st.lists(PATTERNS | st.lists(PATTERNS, min_size=1, max_size=3), max_size=3)
    grant = st.one_of(
        st.booleans(),
        patterns,
        st.fixed_dictionaries({"where": FILTERS}),
        st.fixed_dictionaries({"keys": patterns, "where": FILTERS}),
    )
    return key, draw(st.lists(row, min_size=1, max_size=6)), draw(grant), draw(CLAIMS)


def key_text(row: dict[str, Any], key: tuple[Column, ...]) -> str:
    values = [row[column.name] for column in key]
    if len(values) > 1:
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return str(values[0]).lower() if isinstance(values[0], bool) else str(values[0])


@settings(max_examples=300)
@given(worlds())
@example(((Column("k0", "bigint"),), [{"k0": 7, "owner": "x"}], ["{sub}"], {"sub": "0007", "teams": []}))
@example(((Column("k0", "bigint"),), [{"k0": 7, "owner": "x"}], [["*", "*"]], {"sub": "a", "teams": []}))
@example(
    ((Column("k0", "string"),), [{"k0": "a", "owner": "x"}], {"where": "owner <> {sub}"}, {"sub": "", "teams": []})
)
@example(
    ((Column("k0", "string"), Column("k1", "bigint")), [{"k0": "a", "k1": 7, "owner": "x"}], ['["a",7]'], {"sub": "a"})
)
def test_lookup_listing_key_stream_query_stream_and_feed_show_the_same_rows(
    world: tuple[tuple[Column, ...], list[dict[str, Any]], object, dict[str, Any]],
) -> None:
    key, rows, grant, claims = world
    columns = (*key, Column("owner", "string"))
    known = ServedCatalog()
    known.loaded, known.views = True, {"v": ServedView("v", "l", 1, 1, key, columns)}
    known.feeds = {"f": cast(ServedFeed, SimpleNamespace(entry=SimpleNamespace(key=key)))}
    patterns = grant.get("keys", True) if isinstance(grant, dict) else grant
    try:
        document = read_document({"views": {"*": True, "v": grant}, "feeds": {"*": True, "f": patterns}})
    except RightsError:
        return
    identity, allowing = Identity(claims, Rights(document, claims), 1e10), Authorizer(known, Predicates(), Remembered())

    def matches(where: str | None, row: dict[str, Any]) -> bool:
        return where is None or parse(where, columns).matches(row, 0)

    def lookup(row: dict[str, Any]) -> bool:
        allowing.may_ask(identity, "v", [key_text(row, key).encode()])
        seen = allowing.seen_filter(identity, "v")
        return seen is None or seen.matches(row, 0)

    def listing(row: dict[str, Any]) -> bool:
        restriction = allowing.row_filter(identity, "v")
        return restriction is None or restriction.matches(row, 0)

    def key_stream(row: dict[str, Any]) -> bool:
        follow = asyncio.run(allowing.narrowed(identity, FollowKeys(None, "v", (key_text(row, key),))))
        if isinstance(follow, FollowKeys):
            allowing.may_follow_keys(identity, "v", [key_text(row, key).encode()])
            return True
        assert isinstance(follow, FollowQuery)
        return matches(follow.where, row)

    def query_stream(row: dict[str, Any]) -> bool:
        follow = asyncio.run(allowing.narrowed(identity, FollowQuery(None, "v", "owner = 'x' or true")))
        assert isinstance(follow, FollowQuery)
        return matches(follow.where, row)

    def feed(row: dict[str, Any]) -> bool:
        allowing.may_follow_feed(identity, "f", key_text(row, key))
        return True

    def shown(surface: Callable[[dict[str, Any]], bool]) -> list[bool]:
        found, refused = list[bool](), list[Problem]()
        for row in rows:
            try:
                found.append(surface(row))
            except Problem as problem:
                refused.append(problem)
                found.append(False)
        assert {problem.status for problem in refused} <= {403}
        # No query can say of a number how it begins: then there is none, and nothing is shown by one.
        return lookups if "keys only" in map(str, refused) else found

    lookups: list[bool] = []
    lookups = shown(lookup)
    assert shown(listing) == lookups
    assert shown(key_stream) == lookups
    assert shown(query_stream) == lookups
    if not isinstance(grant, dict):
        assert shown(feed) == lookups
    if grant is False:
        assert not any(lookups)
