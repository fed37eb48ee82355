"""Whatever comes, both clients do the same, and what the protocol says: random cases on the logic of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.logic import NodeLogic, python_logic

KEYS = st.sampled_from(["1", "2", "3"])
ROWS = st.sampled_from([0, {"n": 1}, {"n": 1, "m": [None, "é"]}, {"n": 2}, "text"])
OFFSETS = st.integers(0, 9) | st.integers(2**53 - 2, 2**53 + 2)
# Two builds of one view, and what is no position.
BUILDS = st.sampled_from(["4be1a27c.1", "4be1a27c.2"])
KINDS = st.sampled_from(["keys", "query"])
TEXT = st.text(st.sampled_from('ab":,{}[]\\ é\u2028\n\r\t0'), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)


@st.composite
def positions(draw: st.DrawFn) -> str:
    offsets = draw(st.dictionaries(st.integers(0, 11), OFFSETS, max_size=3))
    return draw(BUILDS) + "".join(f".{partition}-{offset}" for partition, offset in sorted(offsets.items()))


@st.composite
def frames(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["row", "row", "row", "gone", "ready", "ready", "reset", "progress", "unheard of"]))
    frame: dict[str, Any] = {"type": kind}
    if kind in ("row", "gone"):
        frame["key"] = draw(KEYS)
    if kind == "row":
        frame["row"] = draw(ROWS)
    if kind == "reset":
        frame |= {"reason": "generation", "message": "m"}
    if kind in ("row", "gone", "ready") and draw(st.booleans()):
        frame["position"] = draw(positions())
    return frame


STEPS = st.lists(
    st.tuples(st.just("take"), frames()) | st.tuples(st.just("begin"), st.sampled_from(["socket", "events"])),
    max_size=12,
)


@pytest.fixture(scope="module")
def javascript() -> Iterator[NodeLogic]:
    found = NodeLogic()
    yield found
    found.close()


agreed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def both(javascript: NodeLogic, **case: Any) -> Any:
    outcome = python_logic(case)
    assert javascript(case) == outcome
    return outcome


@agreed
@given(texts=st.lists(positions() | st.sampled_from(["", "opaque"]), max_size=6))
def test_positions_are_merged_to_the_highest_offset_of_each_partition(javascript: NodeLogic, texts: list[str]) -> None:
    found = both(javascript, machine="reached", steps=[["merge", text] for text in texts])
    # By another way: the last build's texts, each pair for itself.
    seen = [text for text in texts if text]
    last = [text for text in seen if text != "opaque"]
    if seen and seen[-1] != "opaque":
        build = seen[-1].split(".", 2)[:2]
        run = []
        for text in reversed(seen):
            if text.split(".", 2)[:2] != build:
                break
            run.append(text)
        highest: dict[int, int] = {}
        for pair in (pair for text in run for pair in text.split(".")[2:]):
            partition, offset = map(int, pair.split("-"))
            highest[partition] = max(offset, highest.get(partition, 0))
        pairs = "".join(f".{partition}-{offset}" for partition, offset in sorted(highest.items()))
        assert found[-1] == ".".join(build) + pairs
    assert last or not found or found[-1] in (None, "opaque")


@agreed
@given(kind=KINDS, steps=STEPS)
def test_who_applies_the_changes_holds_the_rows(javascript: NodeLogic, kind: str, steps: list[Any]) -> None:
    steps = [("begin", "socket"), *steps]
    found = both(javascript, machine="copy", kind=kind, steps=steps)
    held: dict[str, Any] = {}
    for told in found["told"]:
        for change in told if isinstance(told, list) else []:
            if change["type"] == "row":
                held[change["key"]] = change["row"]
            elif change["type"] == "gone":
                del held[change["key"]]
    assert held == found["rows"]


@agreed
@given(kind=KINDS, steps=STEPS, transport=st.sampled_from(["socket", "events"]), rows=st.dictionaries(KEYS, ROWS))
def test_a_snapshot_that_is_complete_is_what_is_held(
    javascript: NodeLogic, kind: str, steps: list[Any], transport: str, rows: dict[str, Any]
) -> None:
    snapshot = [["take", {"type": "row", "key": key, "row": row}] for key, row in rows.items()]
    reset = ["take", {"type": "reset", "reason": "ahead", "message": "m"}]
    whole = [*steps, ["begin", transport], reset, *snapshot, ["take", {"type": "ready"}]]
    assert both(javascript, machine="copy", kind=kind, steps=whole)["rows"] == rows


@agreed
@given(row=st.dictionaries(TEXT, JSON, max_size=4), data=st.data())
def test_the_key_is_found_in_any_row(javascript: NodeLogic, row: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.integers(-(10**19), 10**19) | TEXT)
    row = {**row, "id": key}
    text = json.dumps(row, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([None, 1])))
    assert both(javascript, machine="key_of", row=text, columns=["id"]) == str(key)


@agreed
@given(data=st.data(), lines=st.lists(st.sampled_from(["data: a", "data:b", "data", "event: row", "id: 1", ": x", ""])))
def test_events_do_not_depend_on_how_their_text_is_cut(
    javascript: NodeLogic, data: st.DataObject, lines: list[str]
) -> None:
    text = data.draw(st.sampled_from(["\n", "\r\n", "\r"])).join([*lines, "", "", ":"])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = both(javascript, machine="parser", pieces=[text])
    assert both(javascript, machine="parser", pieces=pieces) == whole


@agreed
@given(target=st.fixed_dictionaries({"view": TEXT, "keys": st.lists(TEXT, min_size=1, max_size=2)}))
def test_paths_are_the_same(javascript: NodeLogic, target: dict[str, Any]) -> None:
    both(javascript, machine="path", target=target)
