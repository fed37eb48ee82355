"""From sqlglot's tree to conditions, with every `not` pushed down to the comparisons."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from tailrace.queries.error import QueryError
from tailrace.queries.kinds import Kind
from tailrace.queries.limits import MAX_LIST, MAX_PATTERN
from tailrace.queries.parser.comparisons import compared, listed
from tailrace.queries.parser.order import SUPPORTED
from tailrace.queries.parser.spans import Span
from tailrace.queries.parser.syntax import place
from tailrace.queries.parser.values import NULL, Values, described
from tailrace.queries.pattern import read_pattern
from tailrace.queries.spelling import spell
from tailrace.queries.tree import (
    FALSE,
    OPPOSITE,
    TRUE,
    All,
    Any,
    Arithmetic,
    Compare,
    Condition,
    Constant,
    Field,
    IsNull,
    Like,
    Literal,
)

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


class Conditions:
    """The conditions of a query on the rows of a view."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def read(self, node: exp.Expr, negated: bool = False) -> Condition:
        """The condition of a node, or its opposite."""
        match node:
            case exp.Paren():
                return self.read(node.this, negated)
            case exp.Not():
                return self.read(node.this, not negated)
            case exp.And() | exp.Or():
                terms = [self.read(term, negated) for term in _flat(node, type(node))]
                return every(terms) if isinstance(node, exp.And) != negated else some(terms)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                operator = _COMPARISONS[type(node)]
                return self._compare(node, operator, node.this, node.expression, negated)
            case exp.Between():
                low = self._compare(node, ">=", node.this, node.args["low"], negated)
                high = self._compare(node, "<=", node.this, node.args["high"], negated)
                return some([low, high]) if negated else every([low, high])
            case exp.In():
                return self._in(node, negated)
            case exp.Like() | exp.Escape():
                return self._like(node, negated)
            case exp.Is():
                return self._is(node, negated)
        return self._boolean(node, negated)

    def _boolean(self, node: exp.Expr, negated: bool) -> Condition:
        """A column of booleans, or a literal, as a condition."""
        value = self._values.read(node)
        if value == NULL:
            return FALSE
        if isinstance(value, Literal) and value.kind is Kind.BOOLEAN:
            return Constant(value.value is not negated)
        if isinstance(value, Field) and value.kind is Kind.BOOLEAN:
            return Compare("=", value, Literal(not negated, Kind.BOOLEAN))
        raise QueryError(
            expected="a condition", got=described(value), remedy="Compare it with something.", at=place(node)
        )

    def _compare(self, node: exp.Expr, operator: str, first: exp.Expr, second: exp.Expr, negated: bool) -> Condition:
        operator = OPPOSITE[operator] if negated else operator
        return compared(node, operator, self._values.read(first), self._values.read(second))

    def _in(self, node: exp.In, negated: bool) -> Condition:
        found = node.expressions
        if not found:
            raise QueryError(
                expected="a list of values after in", got="none", remedy="Such as status in ('a', 'b').", at=place(node)
            )
        if len(found) > MAX_LIST:
            raise QueryError(
                expected=f"at most {MAX_LIST} values after in", got=str(len(found)), remedy="Ask for less at once."
            )
        operand, values = self._values.read(node.this), [self._values.read(value) for value in found]
        # Each is compared alone first, which shows whether it can be.
        terms = [compared(node, "<>" if negated else "=", operand, value) for value in values]
        literals = [value for value in values if isinstance(value, Literal)]
        if isinstance(operand, Field | Arithmetic) and operand.kind is not Kind.BOOLEAN and literals == values:
            return listed(operand, literals, negated)
        return every(terms) if negated else some(terms)

    def _like(self, node: exp.Expr, negated: bool) -> Condition:
        escape = "\\"
        if isinstance(node, exp.Escape):
            escape = str(node.expression.this) if _is_text(node.expression) else ""
            node = node.this
        if len(escape) != 1 or not isinstance(node, exp.Like) or not _is_text(node.expression):
            raise QueryError(
                expected="like and a text in single quotes, then perhaps escape and one character",
                got="something else",
                remedy="Such as name like 'A%'; only a literal can be a pattern.",
                at=place(node),
            )
        negated = negated != bool(node.args.get("negate"))
        operand, text = self._values.read(node.this), str(node.expression.this)
        if not isinstance(operand, Field) or operand.kind is not Kind.TEXT:
            raise QueryError(
                expected="a column of text before like", got=described(operand), remedy=SUPPORTED, at=place(node)
            )
        if len(text) > MAX_PATTERN:
            raise QueryError(
                expected=f"a pattern of at most {MAX_PATTERN} characters", got=f"{len(text)}", remedy="Shorten it."
            )
        try:
            pattern = read_pattern(text, escape)
        except ValueError as error:
            raise QueryError(
                expected=f"%, _ or {escape} after the escape {escape}",
                got=repr(str(error)),
                remedy=f"Double it to mean itself: {escape}{escape}.",
                at=place(node.expression),
            ) from None
        if pattern.plain is not None:
            return Compare("<>" if negated else "=", operand, Literal(pattern.plain, Kind.TEXT))
        return Like(operand, pattern, negated)

    def _is(self, node: exp.Is, negated: bool) -> Condition:
        operand, what = self._values.read(node.this), node.expression
        if isinstance(what, exp.Null):
            if isinstance(operand, Span):
                tests: list[Condition] = [IsNull(column, negated) for column in operand.fields]
                return every(tests) if negated else some(tests)
            if isinstance(operand, Literal):
                return Constant((operand == NULL) is not negated)
            return IsNull(operand, negated)
        if isinstance(what, exp.Boolean) and isinstance(operand, Field) and operand.kind is Kind.BOOLEAN:
            same = Compare("=", operand, Literal(bool(what.this) is not negated, Kind.BOOLEAN))
            return some([same, IsNull(operand, False)]) if negated else same
        raise QueryError(
            expected="is null, is not null, or is true and is false after a column of booleans",
            got=f"is after {described(operand)}",
            remedy="Write = to compare values.",
            at=place(node),
        )


def every(terms: list[Condition]) -> Condition:
    """`and` of conditions, in its one form."""
    return _joined(terms, All, TRUE, FALSE)


def some(terms: list[Condition]) -> Condition:
    """`or` of conditions, in its one form."""
    return _joined(terms, Any, FALSE, TRUE)


def _joined(
    terms: list[Condition],
    kind: type[All | Any],
    nothing: Constant,
    decided: Constant,
) -> Condition:
    flat = [part for term in terms for part in (term.terms if isinstance(term, kind) else (term,))]
    if decided in flat:
        return decided
    told = {spell(term): term for term in flat if term != nothing}
    if not told:
        return nothing
    ordered = tuple(told[text] for text in sorted(told))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


def _flat(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The terms of a chain, which can be longer than a recursion may be deep."""
    left = [node]
    while left:
        found = left.pop()
        if isinstance(found, kind):
            left += [found.args["expression"], found.this]
        else:
            yield found


def _is_text(node: object) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)
