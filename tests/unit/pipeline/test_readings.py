"""How the sources of views and feeds are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import functions as F

from tailrace import App, Feed, Topic, View
from tailrace.pipeline.source.reading import looks_at_headers, readings

Declared = Callable[[App, Topic], View | Feed]


def counted(app: App, events: Topic) -> View:
    return app.view("counts", events, key="id", columns={"n": "count(*)"})


LOOK: dict[str, Declared] = {
    "a condition": lambda app, it: counted(app, it.where("_headers['__TypeId__'] = 'rating'")),
    "a column": lambda app, it: counted(app, it.with_columns(type="`_headers`['type']")),
    "a message id": lambda app, it: counted(app, it.dedupe(header="message-id")),
    "an aggregate": lambda app, it: app.view("v", it, key="id", columns={"n": "max(_headers['n'])"}),
    "a function": lambda app, it: app.view("v", it, key="id", columns=lambda: {"n": F.count("*")}),
    "a transform": lambda app, it: app.feed("f", it, key="id", transform=lambda frame: frame),
    "a view over a view": lambda app, it: app.latest("l", counted(app, it)),
}
DO_NOT: dict[str, Declared] = {
    "an aggregate": counted,
    "steps": lambda app, it: counted(app, it.where("id > 0").with_columns(more="id + 1").dedupe(by="id")),
    "a feed": lambda app, it: app.feed("f", it, key="id"),
}


def looks(declare: Declared, expect: str | None = None) -> bool:
    app = App("shop")
    output = declare(app, app.topic("events", value="id long", expect=expect))
    ((_, found),) = readings(output, {})
    return looks_at_headers(output, found)


@pytest.mark.parametrize("declare", LOOK.values(), ids=LOOK)
def test_headers_are_read_where_they_may_be_looked_at(declare: Declared) -> None:
    assert looks(declare)


@pytest.mark.parametrize("declare", DO_NOT.values(), ids=DO_NOT)
def test_headers_that_nobody_looks_at_are_not_read(declare: Declared) -> None:
    assert not looks(declare)


def test_a_rule_may_look_at_headers() -> None:
    assert looks(counted, expect="_headers['ok'] is not null")
    assert not looks(counted, expect="id > 0")
