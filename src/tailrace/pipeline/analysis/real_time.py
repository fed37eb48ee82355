"""What real-time mode can't run, found in an analysed plan before anything runs."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame

# What a transform may be made of: everything that takes one row after the other, without state.
_STATELESS = frozenset(
    ("Project", "Filter", "Generate", "Union", "SubqueryAlias", "LocalRelation", "LogicalRDD", "Expand", "View")
)
_PYTHON = re.compile(r"Python|Pandas|Arrow")


def stateful_nodes(frame: DataFrame) -> list[str]:
    """The operators of a plan that keep state, order or compare rows; Python's are not among them."""
    return [name for name in _nodes(frame) if name not in _STATELESS and not _PYTHON.search(name)]


def python_nodes(frame: DataFrame) -> list[str]:
    """What of a plan runs in Python: real-time mode has no place for it, it would hold rows back in buffers."""
    found = [name for name in _nodes(frame) if _PYTHON.search(name)]
    if "catalyst.expressions.PythonUDF" in _plan(frame).toJSON():
        found.append("a Python function")
    return found


def _nodes(frame: DataFrame) -> list[str]:
    found: list[str] = []
    waiting = [_plan(frame)]
    while waiting:
        node = waiting.pop()
        found.append(str(node.nodeName()))
        children = node.children()
        waiting += [children.apply(number) for number in range(children.size())]
    return found


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()
