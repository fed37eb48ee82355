"""The index of queries: it finds what matches, looks at candidates only, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.contracts.catalog import Column
from tailrace.queries import Predicate, QueryIndex, parse

COLUMNS = (
    Column("client_id", "string"),
    Column("status", "string"),
    Column("total", "double"),
    Column("n", "int"),
    Column("at", "struct<city:string>"),
)
ROW = {"client_id": "c7", "status": "open", "total": 10.0, "n": 7, "at": {"city": "Bern"}}


def index_of(**queries: str) -> QueryIndex:
    index = QueryIndex()
    for id, query in queries.items():
        index.add(id, parse(query, COLUMNS))
    return index


def leaves_nothing(index: QueryIndex) -> bool:
    return all(not held for held in vars(index).values() if isinstance(held, dict))


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The predicates that are asked from now on."""
    looked, plain = [], Predicate.matches

    def noted(self: Predicate, row: Mapping[str, object], now_ms: int) -> bool:
        looked.append(self.text)
        return plain(self, row, now_ms)

    monkeypatch.setattr(Predicate, "matches", noted)
    return looked


def test_queries_are_found_by_what_they_ask() -> None:
    index = index_of(
        a="client_id = 'c7'",
        b="client_id = 'c8'",
        c="status in ('open', 'new') and total > 5",
        d="status in ('open', 'new') and total > 50",
        e="total > 5",
        f="n = 7 or n = 8",
        g="at.city = 'Bern'",
        h="status = 'open' and status = 'new'",
        i="n = 7.5",
        j="true",
    )
    assert index.matching(ROW, 0) == {"a", "c", "e", "f", "g", "j"}
    assert index.matching({}, 0) == {"j"}


def test_of_many_queries_only_the_candidates_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(**{f"q{i}": f"client_id = 'c{i}' and total > 5" for i in range(1000)})
    index.add("in", parse("n in (6, 7, 8)", COLUMNS))
    index.add("other", parse("total < 5", COLUMNS))
    looked = looked_at(monkeypatch)
    assert index.matching(ROW, 0) == {"q7", "in"}
    assert sorted(looked) == ["client_id = 'c7' and total > 5", "n in (6, 7, 8)", "total < 5"]


def test_a_query_is_found_by_the_column_that_it_allows_the_fewest_values_of(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(
        a="client_id = 'c8' and status in ('open', 'new')", b="client_id in ('c7', 'c8') and status = 'new'"
    )
    looked = looked_at(monkeypatch)
    assert index.matching(ROW, 0) == set()
    assert looked == []


def test_equal_predicates_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(a="total > 5 and n = 7", b="n = 7 AND 5 < total", c="total > 5", d="total>5")
    looked = looked_at(monkeypatch)
    assert index.matching(ROW, 0) == {"a", "b", "c", "d"}
    assert sorted(looked) == ["n = 7 and total > 5", "total > 5"]


def test_a_query_can_be_replaced_and_removed_and_leaves_nothing_behind() -> None:
    index = index_of(a="client_id = 'c7'", b="client_id = 'c7'", c="total > 5")
    index.add("a", parse("total > 50", COLUMNS))
    assert index.matching(ROW, 0) == {"b", "c"}
    assert len(index) == 3 and "a" in index
    for id in ("a", "b", "c", "c", "unknown"):
        index.remove(id)
    assert len(index) == 0 and index.matching(ROW, 0) == set()
    assert leaves_nothing(index)


def test_an_id_that_is_added_again_stays() -> None:
    index = index_of(a="n = 7")
    index.add("a", parse("n = 7", COLUMNS))
    assert index.matching(ROW, 0) == {"a"}


def test_the_clock_of_every_query_that_a_row_may_yet_enter_or_leave_is_told() -> None:
    columns = (*COLUMNS, Column("starts_at", "timestamp"))
    index = QueryIndex()
    for id, query in {
        "enters": "client_id = 'c7' and starts_at <= now()",
        "leaves": "starts_at > now()",
        "other client": "client_id = 'c8' and starts_at <= now()",
        "no clock": "client_id = 'c7'",
        "never": "total > 50 and starts_at <= now()",
    }.items():
        index.add(id, parse(query, columns))
    row = {**ROW, "starts_at": "1970-01-01T00:00:01.000Z"}
    assert index.next_changes(row, 0) == {"enters": 1000, "leaves": 1000}
    assert index.next_changes(row, 1000) == {}


def test_queries_that_no_row_fulfils_come_and_go_in_any_order() -> None:
    index = index_of(a="status = 'x' and status = 'y'", b="status = 'z'")
    index.remove("b")
    index.remove("a")
    assert leaves_nothing(index)


# Few columns and values, so that terms contradict each other and share columns.
_TERMS = [
    "status = 'x'",
    "status = 'y'",
    "status in ('x', 'y')",
    "at.city = 'x'",
    "n = 1",
    "n in (1.5, 2)",
    "total > 5",
]
_QUERIES = st.lists(st.sampled_from(_TERMS), min_size=1, max_size=3).flatmap(
    lambda terms: st.sampled_from([" and ", " and ", " or "]).map(lambda word: word.join(terms))
)
_ROWS = [{"status": s, "at": {"city": c}, "n": n, "total": 10.0} for s in "xyz" for c in "xyz" for n in (0, 1, 2)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), _QUERIES | st.none()), max_size=16))
def test_whatever_comes_and_goes_the_index_finds_what_each_predicate_says(steps: list[tuple[str, str | None]]) -> None:
    index, held = QueryIndex(), dict[str, Predicate]()
    for id, query in steps:
        if query is None:
            index.remove(id)
            held.pop(id, None)
        else:
            held[id] = parse(query, COLUMNS)
            index.add(id, held[id])
        for row in _ROWS[:: len(steps)]:
            assert index.matching(row, 0) == {id for id, predicate in held.items() if predicate.matches(row, 0)}
    for id in reversed(held):
        index.remove(id)
    assert leaves_nothing(index)


def test_a_query_that_fails_on_a_row_does_not_match_it_and_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, failed = Predicate.matches, list[None]()

    def broken(self: Predicate, row: Mapping[str, object], now_ms: int) -> bool:
        if "n" in self.text:
            raise KeyError(self.text)
        return plain(self, row, now_ms)

    monkeypatch.setattr(Predicate, "matches", broken)
    index = QueryIndex(lambda: failed.append(None))
    for id, query in {"a": "n = 7", "b": "total > 5", "c": "client_id = 'c7'"}.items():
        index.add(id, parse(query, (COLUMNS[0], COLUMNS[2], COLUMNS[3])))
    for _ in range(3):
        assert index.matching(ROW, 0) == {"b"}
    assert index.holds("b", ROW, 0) and not index.holds("a", ROW, 0)
    # Once for each query, not for each row: `client_id` has an n, too.
    assert len(failed) == 2
