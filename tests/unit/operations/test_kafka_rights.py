"""The least rights of each process, by what an app declares."""

from __future__ import annotations

import pytest

from tailrace.declarations.app import App
from tailrace.kafka.acls import CREATE, DESCRIBE, DESCRIBE_CONFIGS, GROUP, LITERAL, PREFIXED, READ, WRITE
from tailrace.operations.kafka_rights import GATEWAY, MATERIALIZER, OPERATOR, PIPELINE, PROCESSES, kafka_rights

Told = dict[str, set[str]]


def shop() -> App:
    """A view, a table in a join, a view over a view, a feed, an accepted topic, a dedupe, and a topic nobody reads."""
    app = App("shop")
    orders = app.topic("orders", value="id long, customer long, total double", accept=True)
    customers = app.table("customers", key="id", value="name string")
    app.topic("unread", value="id long")
    app.topic("clicks-in", value="id long", accept=True)
    totals = app.view("totals", orders.dedupe("id"), key="customer", columns={"sum": "sum(total)"}, to="shop-totals")
    app.join("named", {"customer": customers, "totals": totals})
    app.feed("notes", orders, key="customer", columns={"id": "id"})
    return app


def of(process: str, *, resource: str = "topic", create_sources: bool = False) -> Told:
    found: Told = {}
    for right in kafka_rights(shop(), process, create_sources=create_sources):
        if right.resource == resource:
            assert right.pattern == (PREFIXED if right.name.endswith(".") else LITERAL)
            assert right.operation not in found.setdefault(right.name, set())
            found[right.name].add(right.operation)
    return found


def test_a_pipeline_reads_sources_and_makes_its_own_topics() -> None:
    own = {CREATE, READ, WRITE, DESCRIBE_CONFIGS}
    assert of(PIPELINE) == {
        "orders": {READ, DESCRIBE_CONFIGS},
        "customers": {READ, DESCRIBE_CONFIGS},
        "tailrace.shop.catalog": own,
        "tailrace.shop.commands": {CREATE, DESCRIBE, DESCRIBE_CONFIGS},
        "shop-totals": own,
        "named": own,
        "notes": own,
        "orders.dead-letters": {CREATE, WRITE, DESCRIBE_CONFIGS},
        "customers.dead-letters": {CREATE, WRITE, DESCRIBE_CONFIGS},
    }
    assert of(PIPELINE, resource=GROUP) == {"tailrace.shop.": {READ}}


def test_a_pipeline_creates_sources_only_if_it_is_told_to() -> None:
    assert {name for name, operations in of(PIPELINE).items() if CREATE in operations}.isdisjoint({"orders"})
    assert of(PIPELINE, create_sources=True)["orders"] == {READ, CREATE, DESCRIBE_CONFIGS}


def test_a_materializer_reads_changelogs_and_adds_to_those_of_views() -> None:
    letters = {CREATE, WRITE, DESCRIBE_CONFIGS}
    assert of(MATERIALIZER) == {
        "tailrace.shop.catalog": {READ},
        "tailrace.shop.commands": {READ},
        "shop-totals": {READ, WRITE, DESCRIBE_CONFIGS},
        "named": {READ, WRITE, DESCRIBE_CONFIGS},
        "notes": {READ},
        "shop-totals.dead-letters": letters,
        "named.dead-letters": letters,
        "notes.dead-letters": letters,
    }
    assert of(MATERIALIZER, resource=GROUP) == {"tailrace.shop.materializer": {READ}, "tailrace.shop.": {DESCRIBE}}


def test_a_gateway_writes_commands_and_events_to_topics_that_accept_them() -> None:
    assert of(GATEWAY) == {
        "tailrace.shop.commands": {READ, WRITE},
        "clicks-in": {WRITE},
        "orders": {WRITE},
        "shop-totals": {DESCRIBE},
        "named": {DESCRIBE},
    }
    assert of(GATEWAY, resource=GROUP) == {"tailrace.shop.": {DESCRIBE}}


def test_an_operator_reads_everything_and_writes_requests_alone() -> None:
    found = of(OPERATOR)
    assert {name for name, operations in found.items() if WRITE in operations} == {"tailrace.shop.catalog"}
    assert {"orders", "customers", "shop-totals", "named", "notes"} == {n for n, o in found.items() if o == {READ}}
    assert found["named.dead-letters"] == {DESCRIBE}
    assert of(OPERATOR, resource=GROUP) == {"tailrace.shop.": {DESCRIBE}}


@pytest.mark.parametrize("process", PROCESSES)
def test_nothing_is_asked_for_twice_and_everything_says_what_it_is_for(process: str) -> None:
    found = kafka_rights(shop(), process)
    assert all(right.why for right in found)
    for right in found:
        if right.operation in (READ, WRITE):
            # Either includes Describe.
            assert right.resource == GROUP or DESCRIBE not in of(process)[right.name]
