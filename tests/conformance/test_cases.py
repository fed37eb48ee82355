"""What both clients do with what comes: the cases of `cases/*.json`, on the logic of each, without a gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from conformance.logic import HERE, Case, NodeLogic, Run, python_logic

CASES = [case for path in sorted((HERE / "cases").glob("*.json")) for case in json.loads(path.read_text())]


@pytest.fixture(scope="module", params=["python", "javascript"])
def logic(request: pytest.FixtureRequest) -> Iterator[Run]:
    """The logic of one client."""
    if request.param == "python":
        yield python_logic
        return
    found = NodeLogic()
    yield found
    found.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['machine']}: {case['name']}")
def test_the_client_does_what_the_case_says(case: Case, logic: Run) -> None:
    assert logic(case) == case["outcome"]


def test_the_names_of_cases_are_told_apart() -> None:
    names = [(case["machine"], case["name"]) for case in CASES]
    assert len(set(names)) == len(names)
