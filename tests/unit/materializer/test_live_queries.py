"""Which queries live, and how long."""

from __future__ import annotations

from tailrace.contracts.catalog import Column
from tailrace.contracts.commands import Stream
from tailrace.materializer.queries.live_queries import LiveQueries
from tailrace.queries import parse

COLUMNS = (Column("n", "bigint"), Column("s", "string"))
BIG = parse("n > 2", COLUMNS).digest


def stream(id: str, where: str | None = "n > 2", *, expires: int = 100, keys: tuple[str, ...] | None = None) -> Stream:
    return Stream(id, "v", keys, where, True, expires)


def live(**columns: tuple[Column, ...]) -> LiveQueries:
    found = LiveQueries()
    found.set_views(columns or {"v": COLUMNS})
    return found


def test_streams_with_one_predicate_share_a_query_that_ends_with_the_last() -> None:
    queries = live()
    queries.put(stream("a"))
    queries.put(stream("b", "2 < n"))
    assert queries.views["v"].queries.keys() == {BIG} and queries.take_changed() == {"v": {BIG}}
    queries.end("a")
    assert queries.views["v"].index.matching({"n": 3}, 0) == {BIG}
    queries.end("b")
    assert not queries.views["v"].queries and queries.views["v"].index.matching({"n": 3}, 0) == set()
    assert queries.take_changed() == {"v": {BIG}}
    queries.end("b")
    assert queries.take_changed() == {}


def test_a_stream_expires_unless_it_is_refreshed() -> None:
    queries = live()
    queries.put(stream("a", expires=100))
    queries.put(stream("b", "n = 1", expires=100))
    queries.put(stream("a", expires=200))
    assert queries.views["v"].queries[BIG].expires == 200
    queries.expire(99)
    assert queries.streams.keys() == {"a", "b"}
    queries.expire(100)
    assert queries.streams.keys() == {"a"} and queries.views["v"].queries.keys() == {BIG}
    queries.expire(200)
    assert not queries.streams and not queries.views["v"].queries


def test_a_stream_that_changes_its_query_leaves_the_one_before() -> None:
    queries = live()
    queries.put(stream("a"))
    queries.put(stream("a", "n = 1"))
    assert queries.views["v"].queries.keys() == {parse("n = 1", COLUMNS).digest}


def test_a_stream_of_keys_has_no_query_and_a_whole_view_the_one_of_every_row() -> None:
    queries = live()
    queries.put(stream("keys", None, keys=("k",)))
    assert not queries.views["v"].queries
    queries.put(stream("all", None))
    assert len(queries.views["v"].index.matching({}, 0)) == 1


def test_a_stream_may_be_known_before_its_view() -> None:
    queries = LiveQueries()
    queries.put(stream("a"))
    assert not queries.views and queries.take_changed() == {}
    queries.set_views({"v": COLUMNS})
    assert queries.views["v"].queries.keys() == {BIG} and queries.take_changed() == {"v": {BIG}}


def test_queries_are_read_anew_when_the_columns_of_their_view_change() -> None:
    queries = live()
    queries.put(stream("a"))
    queries.put(stream("b", "m > 2"))
    assert queries.unusable.keys() == {"b"} and "Did you mean" not in queries.unusable["b"]
    before = queries.views["v"]
    queries.set_views({"v": COLUMNS})
    assert queries.views["v"] is before, "nothing has changed"
    queries.set_views({"v": (Column("m", "bigint"),)})
    assert queries.unusable.keys() == {"a"}
    assert [live.predicate.text for live in queries.views["v"].queries.values()] == ["m > 2"]
    queries.set_views({})
    assert not queries.views


def test_the_clocks_are_among_the_queries_and_alone() -> None:
    queries = live(v=(Column("t", "timestamp"),))
    queries.put(stream("a", "t < now()"))
    queries.put(stream("b", "t is null"))
    view = queries.views["v"]
    assert len(view.index) == 2 and len(view.clocks) == 1
    queries.end("a")
    assert len(view.index) == 1 and len(view.clocks) == 0


def test_a_row_that_is_no_object_has_no_columns() -> None:
    view = live().views["v"]
    assert view.row(b'{"n":3}') == {"n": 3}
    assert view.row(b"[1]") == view.row(b"{") == view.row(b"\xff") == {}
