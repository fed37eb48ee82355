"""Random histories through real-time mode, micro-batches and a fold in plain Python: all three agree, row by row.

One pipeline runs every view twice, once in each mode. Histories share it, each with keys of its own.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import folds
import histories
import kinds
from histories import MINUTE, Record, Send
from kinds import Kinds
from proving import Proof
from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

HOUR = 60 * MINUTE
# Each view is one more query that starts.
PATIENCE = 600.0
FLAGS = ("--state-partitions", "1", "--partitions", str(histories.PARTITIONS))

# Shrinking takes the pipeline through hundreds of histories; `test_kinds_in_a_dry_run` does that in no time.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


OVER_TABLES = pytest.param("over_tables", marks=pytest.mark.campaign("the ordinary run has them on given rows"))


@pytest.fixture(scope="module", params=["over_events", OVER_TABLES])
def proof(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    broker: Broker,
    redis_server: RedisServer,
) -> Iterator[Proof]:
    """A running pipeline with views over events; in the campaign with all of them, then one with those over tables."""
    fresh = f"-{uuid4().hex[:8]}"
    # The ordinary run has the others on given rows.
    few = request.param == "over_events" and not request.config.getoption("--every-kind")
    declared = "few_events" if few else request.param
    declare: Callable[[str], Kinds] = getattr(kinds, declared)
    module = kinds.module(declared, fresh)
    app = Tailrace(tmp_path_factory.mktemp(request.param), broker, redis_server, fresh, module)
    found = Proof(app, declare(fresh), fresh)
    try:
        app.start_pipeline(*FLAGS)
        app.wait_ready("pipeline", PATIENCE)
        yield found
    finally:
        found.close()
        app.stop()


# Two days ago: old enough for what happens a day later, and too young for retention.
START = int(time.time() * 1000) // HOUR * HOUR - 48 * HOUR
numbers = itertools.count(1)


def through(proof: Proof, sends: list[Send]) -> None:
    """Send a history, and wait until all agree."""
    prefix = f"{next(numbers)}|"
    proof.send(histories.records(sends, prefix, START, proof.fresh))
    proof.settle()


def histories_for(proof: Proof) -> st.SearchStrategy[list[Send]]:
    return histories.events() if proof.kinds.app.name.startswith("over-events") else histories.rated()


def test_every_hostile_key_and_every_bad_record(proof: Proof) -> None:
    read = {topic.name for topic in proof.kinds.app.topics}
    records = histories.records(histories.everything(), "", START, proof.fresh)
    proof.send(record for record in records if record.topic in read)
    proof.settle()


def test_random_histories(proof: Proof, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(histories_for(proof))
    def check(sends: list[Send]) -> None:
        through(proof, sends)

    check()


def test_a_bad_record_of_a_megabyte_is_a_dead_letter(proof: Proof) -> None:
    # With the headers of a dead letter it is longer than what a topic takes by default.
    proof.send([replace(event(proof, START), value=b'{"note":"' + b"x" * 1_048_300)])
    proof.settle()
    bad = [r.value for r in proof.sources[histories.EVENTS] if folds.parsed(r.value, folds.EVENT) is None]
    malformed = sum(value is not None for value in bad)
    label = f'{{reason="malformed",topic="{histories.EVENTS}{proof.fresh}"}}'

    def letters() -> float:
        return proof.tailrace.metrics("pipeline").get(f"tailrace_dead_letters_total{label}", 0)

    eventually(lambda: letters() == malformed, f"{malformed} dead letters")


def test_events_that_are_a_day_late_are_dropped_in_both_modes(proof: Proof) -> None:
    """Comes last: it moves the time of all views that know one."""
    if not proof.kinds.app.name.startswith("over-events"):
        pytest.skip("no view over tables knows a time")
    timed = [output.name for (kind, _), output in proof.kinds.outputs.items() if kind in TIMED]
    # A dropped event is counted once per window that it would have been in.
    later = START + 24 * HOUR
    for number in range(3):
        # The time that a batch has seen holds for the batch after the next.
        proof.send([event(proof, later, k="anchor", n=number, id=f"anchor-{number}", p=p) for p in (0, 1)])
        proof.settle()
        counted(proof, timed)
    before = {kind: folds.OVER_EVENTS[kind](proof.history()) for kind in TIMED}
    late = [event(proof, START, k="anchor", n=7, id="late"), event(proof, START, k="nobody", n=7, id="later")]
    proof.send(late)
    eventually(lambda: all(skipped(proof, view, "late") > 0 for view in timed), "late events are counted")
    proof.settle(expected=before)

    # What was remembered for an hour is forgotten after a day; what was remembered for good is not.
    again = next(e for _, e in folds.events(proof.history()) if e["k"] and e["s"] and e["n"] is not None and e["id"])
    proof.send([event(proof, later, **{name: again[name] for name in ("k", "n", "s", "id")})])
    rows: dict[str, folds.Rows] = {kind: dict(before[kind]) for kind in TIMED}
    k, n = again["k"], again["n"]
    old = rows["deduped-within"][k]
    rows["deduped-within"][k] = {**old, "events": old["events"] + 1, "total": (old["total"] or 0) + n}
    start, end = folds.iso(later), folds.iso(later + 10 * MINUTE)
    rows["tumbling"][k, start] = {"k": k, "window_start": start, "window_end": end, "events": 1, "greatest": n}
    for slid in folds.windows(later, 10 * MINUTE, 4 * MINUTE):
        start, end = folds.iso(slid), folds.iso(slid + 10 * MINUTE)
        rows["sliding"][k, n, start] = {"k": k, "n": n, "window_start": start, "window_end": end, "events": 1}
    proof.settle(expected=rows)


def test_no_query_has_failed(proof: Proof) -> None:
    metrics = proof.tailrace.metrics("pipeline")
    failed = {name for name, count in metrics.items() if name.startswith("tailrace_pipeline_restarts_total") and count}
    assert not failed, (proof.tailrace.directory / "pipeline.log").read_text()[-5000:]


TIMED = ("tumbling", "sliding", "deduped-within")


def event(proof: Proof, at: int, p: int = 0, **fields: Any) -> Record:
    value = json.dumps({"at": at, **fields}).encode()
    return Record(histories.EVENTS + proof.fresh, None, value, (), at, p)


def counted(proof: Proof, views: list[str]) -> None:
    """Wait until the batches that have read all events have ended."""
    total = len(proof.sources[histories.EVENTS])

    def behind() -> dict[str, float]:
        metrics = proof.tailrace.metrics("pipeline")
        inputs = {view: metrics[f'tailrace_inputs_total{{view="{view}"}}'] for view in views}
        return {view: count for view, count in inputs.items() if count < total}

    deadline = time.monotonic() + 60
    while found := behind():
        assert time.monotonic() < deadline, f"expected {total} inputs, got {found}"
        time.sleep(0.2)


def skipped(proof: Proof, view: str, reason: str) -> float:
    metrics = proof.tailrace.metrics("pipeline")
    return metrics.get(f'tailrace_skipped_total{{reason="{reason}",view="{view}"}}', 0)
