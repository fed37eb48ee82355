"""docs/queries.md: its examples are taken, its limits are those of the code, and what it says the same is the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailrace.contracts.catalog import Column
from tailrace.queries import limits, parse

PAGE = (Path(__file__).parents[3] / "docs/queries.md").read_text()
BLOCKS = [block.strip().splitlines() for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)]


def documented_columns() -> list[Column]:
    """The table of columns at the top of the page."""
    lines = re.findall(r"^\| (`[a-z_`, ]+`) \| `([^`]+)` \|$", PAGE.partition("```sql")[0], re.MULTILINE)
    return [Column(name, of) for names, of in lines for name in re.findall("`([a-z_]+)`", names)]


@pytest.mark.parametrize("query", [query for block in BLOCKS for query in block])
def test_every_example_is_a_query(query: str) -> None:
    assert parse(query, documented_columns()).text != "false"


def test_what_is_said_to_mean_the_same_is_one_query() -> None:
    assert len({parse(query, documented_columns()).text for query in BLOCKS[1]}) == 1


def test_the_limits_are_those_of_the_code() -> None:
    table = PAGE.partition("## Limits")[2].partition("## Errors")[0]
    numbers = {int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", table)}
    assert {value for name, value in vars(limits).items() if name.startswith("MAX_")} - {limits.MAX_PREFIXES} == numbers
