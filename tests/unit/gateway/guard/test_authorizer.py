"""What a gateway makes of rights: keys that become queries, queries that are narrowed, tokens that change."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tailrace.access.identity import Identity
from tailrace.access.rights import Rights, read_document
from tailrace.contracts.catalog import Column
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.guard.authorizer import Authorizer
from tailrace.gateway.guard.routes import (
    DocumentsPath,
    EventsPath,
    HealthPath,
    OperationsPath,
    OtherPath,
    RowPath,
    RowsPath,
    asked,
)
from tailrace.gateway.live.positions import OTHER_RIGHTS, Reset, entry
from tailrace.gateway.live.predicates import Predicates
from tailrace.gateway.live.requests import Follow, FollowFeed, FollowKeys, FollowQuery, FollowStream
from tailrace.gateway.problems import Problem
from tailrace.queries import parse

ORDER, CUSTOMER, DAY = Column("order_id", "bigint"), Column("customer", "string"), Column("day", "date")
OWN = {"where": "customer = {sub}"}


class Remembered:
    """What the store remembers, in a set."""

    def __init__(self) -> None:
        self.held: set[tuple[str, str]] = set()

    async def add(self, user: str, view: str) -> None:
        self.held.add((user, view))

    async def includes(self, user: str, view: str) -> bool:
        return (user, view) in self.held


@pytest.fixture
def allowing() -> Authorizer:
    known = ServedCatalog()
    known.loaded = True
    known.views = {
        "orders": ServedView("orders", "l", 1, 1, (ORDER,), (ORDER, CUSTOMER)),
        "days": ServedView("days", "l", 1, 1, (DAY,), (DAY, CUSTOMER)),
        "customers": ServedView("customers", "l", 1, 1, (CUSTOMER,), (CUSTOMER, ORDER)),
    }
    return Authorizer(known, Predicates(), Remembered())


def client(sub: str = "c7", **views: Any) -> Identity:
    claims = {"sub": sub}
    document = {"views": views, "feeds": {"notices": ["{sub}"]}, "topics": ["ratings"]}
    return Identity(claims, Rights(read_document(document), claims), 1e10)


def narrowed(allowing: Authorizer, identity: Identity | None, follow: Follow) -> Follow:
    return asyncio.run(allowing.narrowed(identity, follow))


def status(allowing: Authorizer, identity: Identity | None, follow: Follow) -> int:
    with pytest.raises(Problem) as caught:
        narrowed(allowing, identity, follow)
    return caught.value.status


def where(follow: Follow) -> str:
    assert isinstance(follow, FollowQuery) and follow.where is not None
    return follow.where


def test_what_is_allowed_is_followed_as_asked(allowing: Authorizer) -> None:
    identity = client(orders=True)
    for follow in (FollowKeys("a", "orders", ("1",)), FollowQuery("a", "orders"), FollowFeed("a", "notices", "c7")):
        assert narrowed(allowing, identity, follow) is follow


def test_what_is_not_allowed_is_not_followed(allowing: Authorizer) -> None:
    identity = client(orders=["1"])
    assert status(allowing, identity, FollowKeys("a", "orders", ("1", "2"))) == 403
    assert status(allowing, identity, FollowKeys("a", "days", ("1",))) == 403
    assert status(allowing, identity, FollowQuery("a", "days")) == 403
    assert status(allowing, identity, FollowFeed("a", "notices", "c8")) == 403
    assert status(allowing, None, FollowKeys("a", "orders", ("1",))) == 401
    for topic, allowed in (("ratings", True), ("other", False)):
        if allowed:
            allowing.may_send(identity, topic)
        else:
            with pytest.raises(Problem):
                allowing.may_send(identity, topic)
    with pytest.raises(Problem):
        allowing.may_operate(identity)


def test_a_query_gets_the_filter_and_cannot_end_it(allowing: Authorizer) -> None:
    identity = client(orders=OWN)
    assert where(narrowed(allowing, identity, FollowQuery("a", "orders"))) == "customer = 'c7'"
    found = where(narrowed(allowing, identity, FollowQuery("a", "orders", "order_id = 1 or order_id = 2")))
    predicate = parse(found, (ORDER, CUSTOMER))
    assert predicate.matches({"order_id": 2, "customer": "c7"}, 0)
    assert not predicate.matches({"order_id": 1, "customer": "c8"}, 0)
    for text in ("true) or (true", "order_id = 1) --", "'"):
        assert status(allowing, identity, FollowQuery("a", "orders", text)) == 400


def test_keys_under_a_filter_are_a_query(allowing: Authorizer) -> None:
    identity = client(orders=OWN, days=OWN)
    follow = narrowed(allowing, identity, FollowKeys("a", "orders", ("1", "2", "x")))
    predicate = parse(where(follow), (ORDER, CUSTOMER))
    assert (follow.id, follow.position) == ("a", None)
    assert predicate.matches({"order_id": 2, "customer": "c7"}, 0)
    assert not predicate.matches({"order_id": 2, "customer": "c8"}, 0)
    assert not predicate.matches({"order_id": 3, "customer": "c7"}, 0)
    assert status(allowing, identity, FollowKeys("a", "days", ("2026-01-01",))) == 403
    allowing.may_ask(identity, "orders", [b"1"])
    with pytest.raises(Problem, match="query only"):
        allowing.may_follow_keys(identity, "orders", [b"1"])


def test_the_keys_and_the_filter_of_a_grant_are_joined_once(allowing: Authorizer) -> None:
    identity = client(orders={**OWN, "keys": ["1", "2"]})
    found = allowing.row_filter(identity, "orders")
    assert found is not None and allowing.row_filter(client(orders={**OWN, "keys": ["1", "2"]}), "orders") is found
    assert found == parse("customer = 'c7' and (order_id = 1 or order_id = 2)", (ORDER, CUSTOMER))
    assert allowing.row_filter(client("c8", orders={**OWN, "keys": ["1", "2"]}), "orders") != found


def test_a_query_that_may_not_be_had_is_refused_before_it_is_read(allowing: Authorizer) -> None:
    identity = client(days=["2026-01-01"])
    view = allowing.view(identity, "days")
    for text in ("day = date '2026-01-01'", "unknown = 1", "'"):
        with pytest.raises(Problem, match="keys only"):
            asyncio.run(allowing.query(identity, view, text))


def test_a_position_from_under_a_filter_is_worth_nothing(allowing: Authorizer) -> None:
    own, everything = client(orders=OWN), client(orders=True)
    keys, query = FollowKeys("a", "orders", ("1",), "p"), FollowQuery("a", "orders", None, "p")
    several = FollowKeys("a", "orders", ("1", "2"), None, {"1": "p"})
    for follow in (keys, query, several):
        assert narrowed(allowing, everything, follow) is follow
    for follow in (keys, query, several):
        assert narrowed(allowing, own, follow).position == OTHER_RIGHTS
    # Who may see everything now was shown a part before, and has not seen what is older.
    for follow in (keys, query, several):
        found = narrowed(allowing, everything, follow)
        assert found.position == OTHER_RIGHTS and not (isinstance(found, FollowKeys) and found.positions)
    other = client("c8", orders=["1"])
    assert narrowed(allowing, other, query).position == OTHER_RIGHTS
    assert narrowed(allowing, other, keys) is keys
    assert narrowed(allowing, client("c8", orders=True), query).position == OTHER_RIGHTS
    assert narrowed(allowing, own, replace(query, position=None)).position is None
    reset = entry(OTHER_RIGHTS, allowing._catalog.views["orders"], 0, 5)
    assert isinstance(reset, Reset) and reset.reason == "rights"


def test_who_may_have_some_keys_gets_them_from_a_query(allowing: Authorizer) -> None:
    identity = client(customers=["{sub}", "shared/*"], days=["2026-01-01"])
    predicate = parse(where(narrowed(allowing, identity, FollowQuery("a", "customers"))), (CUSTOMER, ORDER))
    assert [predicate.matches({"customer": text}, 0) for text in ("c7", "shared/1", "c8", "c70")] == [
        True,
        True,
        False,
        False,
    ]
    assert status(allowing, identity, FollowQuery("a", "days")) == 403
    assert isinstance(narrowed(allowing, identity, FollowKeys("a", "days", ("2026-01-01",))), FollowKeys)


def test_rights_that_do_not_fit_the_view_allow_nothing(allowing: Authorizer) -> None:
    for filter in ("nothing = {sub}", "order_id = {sub}"):
        identity = client(orders={"where": filter})
        assert status(allowing, identity, FollowQuery("a", "orders")) == 403
        assert status(allowing, identity, FollowKeys("a", "orders", ("1",))) == 403


def test_a_subscription_goes_on_as_it_is_only_where_the_new_token_shows_the_same_rows(allowing: Authorizer) -> None:
    everything, own, other = client(orders=True), client(orders=OWN), client("c8", orders=OWN)
    for follow in (FollowKeys("a", "orders", ("1",)), FollowQuery("a", "orders", "order_id = 1")):
        assert not allowing.changed(follow, everything, client("c8", orders=True))
        assert not allowing.changed(follow, own, client(orders=OWN))
        for before, after in ((everything, own), (own, everything), (own, other)):
            assert allowing.changed(follow, before, after)
        # That a user sees a part is noted when a subscription begins, so that of another user begins.
        shared = {"where": "customer = 'c7'"}
        assert allowing.changed(follow, client(orders=shared), client("c8", orders=shared))
        with pytest.raises(Problem, match="not allowed"):
            allowing.changed(follow, own, client(days=True))
    feed = FollowFeed("a", "notices", "c7")
    assert not allowing.changed(feed, own, everything)
    with pytest.raises(Problem, match="not allowed"):
        allowing.changed(feed, own, other)
    with pytest.raises(TypeError, match="what a stream follows"):
        allowing.changed(FollowStream("a", "s-1"), own, own)


def test_what_may_not_be_had_is_refused_alike_whether_it_is_there_or_not(allowing: Authorizer) -> None:
    views: dict[str, Any] = {"orders": OWN, "public-*": OWN}
    identity = client(**views)
    bodies = []
    for name in ("days", "nothing"):
        with pytest.raises(Problem) as caught:
            allowing.view(identity, name)
        bodies.append({**caught.value.body, "got": ""})
    assert bodies[0] == bodies[1] and "orders" not in str(bodies)
    for follow in (FollowKeys("a", "public-1", ("1",)), FollowQuery("a", "public-1")):
        with pytest.raises(Problem) as caught:
            narrowed(allowing, identity, follow)
        assert (caught.value.status, caught.value.body["expected"]) == (404, ["orders"])
    assert allowing.known_names(identity, "feed", ["notices", "others"]) == ["notices"]
    assert allowing.known_names(identity, "topic", ["others", "ratings"]) == ["ratings"]


def test_before_the_catalog_is_read_a_client_is_asked_to_come_again(allowing: Authorizer) -> None:
    allowing._catalog.loaded, allowing._catalog.views = False, {}
    for follow in (FollowKeys("a", "orders", ("1",)), FollowQuery("a", "orders")):
        assert status(allowing, client(orders=OWN), follow) == 503


def test_a_path_says_what_it_asks_for() -> None:
    for path, what in {
        "/": HealthPath(),
        "/health/ready": HealthPath(),
        "/docs/swagger-ui.css": HealthPath(),
        "/openapi.json": DocumentsPath(general=True),
        "/metrics": OperationsPath(),
        "/views/orders": RowsPath("orders"),
        "/views/a%2Fb/c%2Fd": RowPath("a/b", "c/d"),
        "/views/orders/": RowPath("orders", ""),
        "/views/orders/%65vents": RowPath("orders", "events"),
        "/views/orders/events": OtherPath(),
        "/views/orders/1/events": OtherPath(),
        "/views//orders": RowPath("", "orders"),
        "/topics/ratings/events": EventsPath("ratings"),
        "/tickets": OtherPath(),
        "//health/live": OtherPath(),
        "/health": OtherPath(),
        "/Metrics": OtherPath(),
    }.items():
        assert asked(path) == what, path
