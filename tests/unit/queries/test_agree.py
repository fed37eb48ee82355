"""What a predicate says of a row is what SQLite says, and it says the same under every spelling and in an index."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from querying import COLUMNS, NOW, Sql, clocks, conditions, rows, same
from tailrace.contracts.catalog import Column
from tailrace.queries import Predicate, QueryError, QueryIndex, parse

_DATABASE = sqlite3.connect(":memory:")
_DATABASE.execute("pragma case_sensitive_like = on")
_ROW = ", ".join(f'? as "{column.name}"' for column in COLUMNS)


def sqlite_says(query: Sql, row: dict[str, Any]) -> bool:
    """Whether SQLite, which shares nothing with us, finds the row."""
    cells = [_ms(row[c.name]) if c.type == "timestamp" else row[c.name] for c in COLUMNS]
    found = _DATABASE.execute(f"select count(*) from (select {_ROW}) where {query.sqlite}", cells)
    return bool(found.fetchone()[0])


def _ms(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)


def _parsed(query: Sql, columns: Sequence[Column] = COLUMNS) -> Predicate:
    """The predicate; what is rightly refused is no example."""
    try:
        return parse(query.ours, columns)
    except QueryError as error:
        if error.expected.startswith("each side of a comparison of times"):
            reject()
        raise


@settings(max_examples=400, deadline=None)
@given(conditions() | clocks(), st.lists(rows, min_size=1, max_size=4))
def test_a_predicate_says_of_a_row_what_sqlite_says(query: Sql, given_rows: list[dict[str, Any]]) -> None:
    predicate = _parsed(query)
    for row in given_rows:
        assert predicate.matches(row, NOW) is sqlite_says(query, row), (predicate.text, row)


@settings(max_examples=300, deadline=None)
@given(conditions(), rows)
def test_the_canonical_text_parses_to_itself_and_means_the_same(query: Sql, row: dict[str, Any]) -> None:
    predicate = _parsed(query)
    again = parse(predicate.text, COLUMNS)
    assert (again.text, again, again.digest) == (predicate.text, predicate, predicate.digest)
    assert again.matches(row, NOW) is predicate.matches(row, NOW)


@settings(max_examples=150, deadline=None)
@given(st.lists(conditions(2), min_size=2, max_size=4), st.sampled_from(["and", "or"]), st.randoms())
def test_the_order_of_terms_makes_no_difference(terms: list[Sql], word: str, chance: random.Random) -> None:
    shuffled = list(terms)
    chance.shuffle(shuffled)
    first, second = (f" {word} ".join(f"({term.ours})" for term in order) for order in (terms, shuffled))
    assert _parsed(same(first)) == _parsed(same(second))


@settings(max_examples=150, deadline=None)
@given(st.lists(conditions(1), max_size=12), st.lists(rows, min_size=1, max_size=4), st.randoms())
def test_the_index_finds_exactly_the_queries_that_match(
    queries: list[Sql], given_rows: list[dict[str, Any]], chance: random.Random
) -> None:
    index = QueryIndex()
    predicates = {f"q{i}": _parsed(query) for i, query in enumerate(queries)}
    for id, predicate in predicates.items():
        index.add(id, predicate)
    for id in chance.sample(sorted(predicates), len(predicates) // 3):
        index.remove(id)
        del predicates[id]
    for row in given_rows:
        assert index.matching(row, NOW) == {id for id, found in predicates.items() if found.matches(row, NOW)}


@settings(max_examples=150, deadline=None)
@given(conditions(), rows)
def test_every_row_that_matches_fulfils_the_equality_terms(query: Sql, row: dict[str, Any]) -> None:
    predicate = _parsed(query)
    if predicate.matches(row, NOW):
        assert all(row[column] in values for column, values in predicate.equal.items())


@settings(max_examples=200, deadline=None)
@given(clocks(), rows)
def test_the_next_change_is_the_first_that_a_scan_of_the_clock_finds(query: Sql, row: dict[str, Any]) -> None:
    predicate = _parsed(query)
    before = predicate.matches(row, NOW)
    # All times of rows and literals are within 20 ms of now, and intervals are up to 20 ms long.
    scanned = next((ms for ms in range(NOW + 1, NOW + 100) if predicate.matches(row, ms) is not before), None)
    assert predicate.next_change(row, NOW) == scanned
    assert predicate.clock or scanned is None


_CELLS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)
_EXTREMES = st.sampled_from([10**400, -(10**400), Decimal("1e999999"), "0000-00-00", "+99999999-01-01", "2026-13-01T"])


@settings(max_examples=200, deadline=None)
@given(conditions(2), st.fixed_dictionaries({column.name: _CELLS | _EXTREMES for column in COLUMNS}))
def test_no_row_makes_a_query_fail(query: Sql, row: dict[str, Any]) -> None:
    for types in (COLUMNS, [Column(c.name, "decimal(38,2)" if c.name in ("n", "d") else c.type) for c in COLUMNS]):
        predicate = _parsed(query, types)
        assert predicate.matches(row, NOW) in (True, False)
        predicate.next_change(row, NOW)
