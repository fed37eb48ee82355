"""The predicate: which rows of a view a query matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType

from tailrace.queries.clock import Crossing, comparisons, crossing, next_change
from tailrace.queries.cost import Terms, cost_of, equalities
from tailrace.queries.evaluation import check_of
from tailrace.queries.spelling import spell
from tailrace.queries.tree import Condition, Scalar


@dataclass(frozen=True)
class Predicate:
    """A condition on rows, made by `parse`.

    text: the one spelling of this condition; the order of its terms, spaces and case make no difference.
    digest: 16 hex digits of the text.
    clock: whether it uses now(), so that rows come and go without a change.
    cost: the work for a row, at most, in comparisons.
    equal: columns of text, integers or booleans, with values of which every matching row holds one.
    terms: the same, including fields of structs.
    """

    text: str
    tree: Condition = field(repr=False, hash=False)
    digest: str = field(repr=False, compare=False)
    clock: bool = field(repr=False, compare=False)
    cost: int = field(repr=False, compare=False)
    equal: Mapping[str, frozenset[Scalar]] = field(repr=False, compare=False)
    terms: Terms = field(repr=False, compare=False)
    _check: Callable[[Mapping[str, object], int], bool] = field(repr=False, compare=False)
    _crossings: tuple[Crossing, ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, tree: Condition) -> Predicate:
        """The predicate of a condition."""
        text, terms = spell(tree), equalities(tree)
        crossings = tuple(crossing(comparison) for comparison in comparisons(tree))
        return cls(
            text=text,
            tree=tree,
            digest=sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16],
            clock=bool(crossings),
            cost=cost_of(tree),
            equal=MappingProxyType({field.path[0]: held for field, held in terms.items() if len(field.path) == 1}),
            terms=MappingProxyType(terms),
            _check=check_of(tree),
            _crossings=crossings,
        )

    def matches(self, row: Mapping[str, object], now_ms: int) -> bool:
        """Whether a row, as decoded JSON, matches at a time."""
        return self._check(row, now_ms)

    def next_change(self, row: Mapping[str, object], now_ms: int) -> int | None:
        """The first later millisecond at which `matches` changes for the same row; None if it never does."""
        return next_change(self._check, self._crossings, row, now_ms) if self._crossings else None
