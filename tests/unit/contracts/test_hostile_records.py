"""Records that others may have made: each is read, or refused with the error that its reader knows."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from poisoning import DEEP, GARBAGE, damaged
from tailrace.contracts.catalog import (
    APP_RECORD,
    PROGRESS_RECORDS,
    Catalog,
    CatalogFeed,
    CatalogTopic,
    CatalogView,
    Column,
    ViewProgress,
)
from tailrace.contracts.commands import Command, NotACommand, Stream, decode_command
from tailrace.contracts.freshness import Report
from tailrace.contracts.key_changes import KeyChanges
from tailrace.contracts.requests import Request, request_for
from tailrace.errors import NewerFormat, TailraceError
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.materializer.queries.live_queries import LiveQueries, ViewQueries
from tailrace.pipeline.lifecycle.past import Past

COLUMNS = (Column("k", "string"), Column("n", "decimal(38,2)"), Column("s", "string"))
VIEW = CatalogView(
    "orders", "changelog", "id", 3, 2, COLUMNS[:1], COLUMNS, {"kind": "latest"}, {"t": "id"}, {"t": {"0": 1}}, {"0": 5}
)
VIEW = replace(VIEW, schemas={"t": ("x", None)}, next=replace(VIEW, generation=3))
FEED = CatalogFeed("notes", "notes", "id", 1, 1, COLUMNS[:1], COLUMNS, {}, hold=1.5)
TOPIC = CatalogTopic("t", "json", COLUMNS, key=COLUMNS[:1], key_columns=("k",))
CATALOG = Catalog(
    "app",
    {"orders": VIEW, "other": replace(VIEW, name="other", changelog="others")},
    {"notes": FEED},
    topics={"t": TOPIC},
)
PROGRESS = ViewProgress(
    "orders", 2, 7, 9, {"bad": 1}, "live", {"t": {"0": 4}}, degraded=("why",), state={"rows": {"disk": 1}}
)
CHANGES = KeyChanges(2, 0, {"a": 1}, {"b": 2})
STREAM = Stream("s-1", "orders", ("a", "b"), "n > 2", False, 1_790_000_000_000, 60, CHANGES)
REQUEST = Request(2, {"t": {"0": 17}}, "because")


class NoError(Exception):
    """What is never raised."""


def test_what_was_written_is_read_as_it_was() -> None:
    assert Catalog.decode(CATALOG.encode()) == CATALOG and not Catalog.decode(CATALOG.encode()).refused
    assert ViewProgress.decode(PROGRESS.encode()) == PROGRESS
    assert decode_command("s-1", Command("open", STREAM).encode()).stream == STREAM
    assert request_for("orders", {"request/orders": REQUEST.encode()}) == REQUEST


def _catalog(data: bytes) -> None:
    """What is read of a catalog can be used, and written again."""
    found = Catalog.decode(data, CATALOG)
    found.encode()
    for view in found.views.values():
        ServedView.of(found, view)
        assert view.partitions > 0 and view.changelog[:0] < "x"
    queries = LiveQueries()
    queries.set_views({name: (*view.key, *view.columns) for name, view in found.views.items()})


def _command(data: bytes) -> None:
    stream = decode_command("s-1", data).stream
    Command("refresh", stream).encode()
    queries = LiveQueries()
    queries.set_views({"orders": COLUMNS})
    queries.put(stream)
    queries.expire(2**62)
    assert not queries.streams and not queries.views["orders"].queries


@pytest.mark.parametrize(
    ("good", "read", "known"),
    [
        (CATALOG.encode(), _catalog, ValueError),
        (PROGRESS.encode(), lambda data: ViewProgress.decode(data).processed, ValueError),
        (Command("open", STREAM).encode(), _command, NotACommand),
        (REQUEST.encode(), lambda data: request_for("orders", {"request/orders": data}), NoError),
        (Report(1, "x", 1, 1, 1.0, 1, {1: 1}).encode(), Report.decode, NoError),
    ],
    ids=["catalog", "progress", "command", "request", "report"],
)
def test_a_record_of_any_make_is_read_or_refused(
    good: bytes, read: Callable[[bytes], object], known: type[Exception], examples: int
) -> None:
    chance = random.Random(1)
    for data in [*GARBAGE, *(damaged(chance, good) for _ in range(250 * examples))]:
        with contextlib.suppress(known):
            read(data)


def test_no_entry_takes_the_changelog_of_another() -> None:
    found = json.loads(CATALOG.encode())
    found["views"]["zz"] = {**found["views"]["orders"], "name": "zz"}
    read = Catalog.decode(json.dumps(found).encode(), CATALOG)
    assert list(read.views) == ["orders", "other"] and "changelog of its own" in read.refused["views/zz"]
    before = Catalog.decode(json.dumps({**found, "views": {"zz": found["views"]["zz"]}}).encode())
    assert before.views["zz"].changelog == CATALOG.views["orders"].changelog
    found["views"]["zz"]["partitions"] = "many"
    assert list(Catalog.decode(json.dumps(found).encode(), before).views) == ["orders", "other"]


def test_a_build_within_a_build_within_a_build_ends_nothing() -> None:
    view = json.loads(CATALOG.encode())["views"]["orders"]
    deep = b'{"format":1,"app":"a","views":{"orders":' + b"".join(
        json.dumps({**view, "next": 0}).encode()[:-2] for _ in range(900)
    )
    deep += b"null" + b"}" * 902
    try:
        found = Catalog.decode(deep, CATALOG)
    except ValueError:
        return
    assert found.views["orders"] == VIEW and found.refused


def test_an_entry_that_cannot_be_read_stays_what_it_was_and_stops_no_other() -> None:
    found = json.loads(CATALOG.encode())
    found["views"]["orders"]["partitions"] = "three"
    found["views"]["other"]["generation"] = 9
    data = json.dumps(found).encode()
    catalog = Catalog.decode(data, CATALOG)
    assert catalog.views["orders"] == VIEW and catalog.views["other"].generation == 9
    assert list(catalog.refused) == ["views/orders"]
    assert "orders" not in Catalog.decode(data).views


def test_a_gateway_follows_what_it_can_read_and_tells_the_rest_once() -> None:
    known, failures = ServedCatalog(), list[None]()
    known.failed = lambda: failures.append(None)
    known.load({APP_RECORD: CATALOG.encode(), PROGRESS_RECORDS + "orders": PROGRESS.encode()})
    for data in (b"{}", DEEP):
        for _ in range(3):
            assert known.load({APP_RECORD: data}) == set()
        assert known.problem is not None and set(known.views) == {"orders", "other"}
    assert len(failures) == 2
    known.load({APP_RECORD: CATALOG.encode(), PROGRESS_RECORDS + "orders": b"[]"})
    assert known.problem is None and len(failures) == 3 and not known.progress


@pytest.mark.parametrize("key", [b'["\\ud800",1]', b"[" * 5000, b"[1", b"[1]", b"\xff", b'["a",' + b"9" * 5000 + b"]"])
def test_every_key_that_a_client_may_name_has_a_spelling(key: bytes) -> None:
    view = replace(VIEW, key=(Column("a", "string"), Column("b", "bigint")))
    assert json.loads(ServedView.of(CATALOG, view).key_object(key)).keys() == {"key"}


@pytest.mark.parametrize("value", [DEEP, b'{"n":1e99999999999999999999}', b"{", b"\xff", b"[1]", b"1" * 5000])
def test_nothing_is_known_of_a_row_that_cannot_be_read(value: bytes) -> None:
    assert ViewQueries(COLUMNS).row(value) == {}


def test_a_pipeline_starts_with_what_it_can_read_of_its_past() -> None:
    records = {APP_RECORD: DEEP, "progress/orders": b"[]", "building/orders": PROGRESS.encode()}
    past = Past("app", records)
    assert past.catalog() == Catalog("app", {})
    assert past.progress("progress/orders") is None and past.progress("building/orders") == PROGRESS
    assert past.set_aside == {"catalog": 1, "progress": 1} and "progress/orders" not in records
    # The command line prints what users can mend as one line.
    assert issubclass(NewerFormat, TailraceError)
    with pytest.raises(NewerFormat, match="got 2: update"):
        Past("app", {APP_RECORD: b'{"format":2}'}).catalog()
