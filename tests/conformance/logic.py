"""Runs cases on the logic of the clients: in this process on the Python one, in a Node process on tailrace.js."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tailrace.client.again import Route, after_close, after_reason, after_status, delay
from tailrace.client.changes import Changes
from tailrace.client.conversation import Conversation
from tailrace.client.events import EventFrames, EventParser, key_of
from tailrace.client.frames import Change, Event, Gone, Progress, Ready, Reset, Row
from tailrace.client.local_copy import Copy
from tailrace.client.reached import Reached
from tailrace.client.targets import events_path, is_apart, key_text

Case = Mapping[str, Any]
Run = Callable[[Case], Any]

HERE = Path(__file__).parent
_CHANGES = {"row": Row, "gone": Gone, "event": Event, "ready": Ready, "reset": Reset, "progress": Progress}
_NAMES = {kind: name for name, kind in _CHANGES.items()}


def node() -> str:
    """The Node to run tests with; skips where there is none."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs Node 20 or newer on the PATH, to run tailrace.js: install nodejs")
    return found


class NodeLogic:
    """tailrace.js in a Node process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [node(), str(HERE / "logic.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, case: Case) -> Any:
        """The outcome of a case."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(case) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"node has ended at {json.dumps(case)}"
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def python_logic(case: Case) -> Any:
    """The outcome of a case, as JSON would give it back."""
    return json.loads(json.dumps(_MACHINES[case["machine"]](case), default=_plain))


def change_of(value: Mapping[str, Any]) -> Change:
    """A change from its JSON."""
    fields = {name: value.get(name) for name in value if name != "type"}
    return cast(Change, _CHANGES[value["type"]](**fields))


def _plain(value: Any) -> Any:
    fields = {name: found for name, found in dataclasses.asdict(value).items() if found is not None}
    return {"type": _NAMES[type(value)], **fields}


def _steps(machine: Any, case: Case) -> list[Any]:
    return [getattr(machine, verb)(*values) for verb, *values in case["steps"]]


def _reached(case: Case) -> Any:
    reached = Reached()
    told = []
    for verb, text in case["steps"]:
        getattr(reached, verb)(text)
        told.append(reached.text)
    return told


def _copy(case: Case) -> Any:
    copy = Copy(case["kind"], case.get("position"))
    return {"told": _steps(copy, case), "rows": copy.rows, "ready": copy.ready}


def _parser(case: Case) -> Any:
    parser = EventParser()
    return [event for piece in case["pieces"] for event in parser.feed(piece)]


def _changes(case: Case) -> Any:
    changes = Changes()
    told: list[Change | None] = []
    for verb, *values in case["steps"]:
        if verb == "push":
            changes.push(change_of(values[0]))
        told.append(changes.shift() if verb == "shift" else None)
    return told


def _route(case: Case) -> Any:
    route = Route(case.get("transport", "auto"))
    return [[getattr(route, verb)(), route.transport] for verb in case["steps"]]


_MACHINES: Mapping[str, Run] = {
    "reached": _reached,
    "copy": _copy,
    "conversation": lambda case: _steps(Conversation(), case),
    "parser": _parser,
    "frames": lambda case: _steps(EventFrames(case["target"]), case),
    "changes": _changes,
    "route": _route,
    "key_of": lambda case: key_of(case["row"], case["columns"]),
    "key_text": lambda case: key_text(case["key"]),
    "apart": lambda case: is_apart(case["target"], case["others"]),
    "path": lambda case: events_path(case["target"], case.get("position")),
    "delay": lambda case: 1000 * delay(case["attempt"], case["random"], retry_after=case["retry_after"]),
    "close": lambda case: after_close(case["code"]),
    "reason": lambda case: after_reason(case["reason"], retry=case["retry"]),
    "status": lambda case: after_status(case["status"]),
}
