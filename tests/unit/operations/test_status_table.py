"""What `tailrace status` prints of views."""

from __future__ import annotations

from tailrace import App
from tailrace.contracts.freshness import Delay
from tailrace.operations.status import ViewStatus, remembered
from tailrace.operations.status_table import footnotes, view_rows
from tailrace.operations.store_status import StoredPartition
from tailrace.pipeline.analysis.definitions import definition

STORE = [StoredPartition(0, 4, 5, 0)]


def test_a_live_view_shows_its_delay_and_that_some_figures_move_with_batches() -> None:
    live = ViewStatus("averages", 1, "live", 0, {}, 0, 0, 0.0, 0, None, STORE, True, Delay(12, 1340, 5))
    header, row = view_rows([live])
    assert dict(zip(header, row, strict=True)) == {
        "view": "averages",
        "generation": "1",
        "mode": "live",
        "behind": "0",
        "delay p50 / max": "12 ms / 1.3 s",
        "read": "0",
        "skipped": "0",
        "lost": "0",
        "state": "-",
        "store behind": "0",
    }
    (note,) = footnotes([live])
    assert "when a batch ends" in note and "estimate" in note


def test_a_view_without_rows_shows_no_delay_and_each_reason_has_its_line() -> None:
    reasons = ["the pipeline has failed on it", "a task waits"]
    failed = ViewStatus("a", 1, "failed", 0, {}, 0, 9, 61.0, 0, 2, STORE, degraded=reasons)
    assert view_rows([failed])[1][1:5] == ("1 → 2", "failed", "9 (61 s)", "-")
    assert footnotes([failed]) == ["a: the pipeline has failed on it", "a: a task waits"]


def test_the_size_of_the_state_is_shown_and_what_a_dedupe_remembers() -> None:
    state = {"rows": {"disk": 2_000_000, "memory": 500_000}, "dedupe": {"disk": 1_500_000, "memory": 0}}
    view = ViewStatus("a", 1, "micro-batch", 9, {}, 0, 0, 0.0, 0, state=state, remembers=["every id for ever"])
    assert view_rows([view])[1][8] == "4.0 MB"
    assert footnotes([view]) == ["a: dedupe remembers every id for ever: 1.5 MB"]
    new = ViewStatus("a", 1, "micro-batch", 9, {}, 0, 0, 0.0, 0, remembers=["every id for ever"])
    assert footnotes([new]) == ["a: dedupe remembers every id for ever: no batch has ended yet"]


def test_what_a_dedupe_remembers_is_found_in_every_kind_of_definition() -> None:
    app = App("movies")
    events = app.topic("events", value="k string, id string")
    once = app.view("once", events.dedupe(by="id"), key="k", columns={"n": "count(*)"})
    hour = app.feed("hour", events.dedupe(header="message-id", within="1 hour"), key="k")
    twice = app.latest("twice", events.dedupe(by=["k", "id"]), key="k")
    plain = app.view("plain", events.dedupe(), key="k", columns={"n": "count(*)"})
    found = [remembered(definition(output, 2)) for output in (once, hour, twice, plain)]
    assert found == [
        ["every id for ever"],
        ["every header message-id of the last 1 hour"],
        ["every k, id for ever"],
        [],
    ]
