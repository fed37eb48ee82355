"""From the text of a query to its predicate."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.contracts.catalog import Column
from tailrace.queries.error import QueryError
from tailrace.queries.limits import MAX_COST
from tailrace.queries.parser import syntax
from tailrace.queries.parser.conditions import Conditions
from tailrace.queries.parser.tokens import check
from tailrace.queries.parser.values import Values
from tailrace.queries.predicate import Predicate


def parse(text: str, columns: Sequence[Column]) -> Predicate:
    """The predicate of a text on rows with these columns, including those of the key. Raises only QueryError."""
    condition = Conditions(Values(columns)).read(syntax.read(text))
    predicate = Predicate.of(condition)
    if predicate.cost > MAX_COST:
        raise QueryError(
            expected=f"a query that costs at most {MAX_COST} comparisons per row",
            got=str(predicate.cost),
            remedy="Put values of one column into a list: status in ('a', 'b').",
        )
    # Other processes get the spelling, and must be able to read it.
    check(predicate.text)
    return predicate
