"""Overflows as null by Spark's own `try_` functions: what `Overflow.java` does as a rule, done to one plan at a time.

It is used if the part `overflow` is off. Whatever a view was declared as is in its plan, SQL, columns and transforms
alike. So the plan is looked through, and what may overflow is put anew in the words of Spark's SQL.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tailrace.pipeline.spark.jvm_parts import OVERFLOW, active

_BYTES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
_LEAST = "-9223372036854775808L"
_BEYOND = "9.223372036854775808E18D"
_BINARY = {"Add": "try_add(a, b)", "Subtract": "try_subtract(a, b)", "Multiply": "try_multiply(a, b)"}
# Counts of records do not overflow, and their state is to stay as it is.
_COUNT = "__count"


def checked(frame: DataFrame) -> DataFrame:
    """The frame, in whose plan a whole number that overflows is null."""
    if OVERFLOW in active(frame.sparkSession):
        return frame
    plan = frame._jdf.queryExecution().analyzed()
    rewriter = _Rewriter(frame.sparkSession._jvm, frame.sparkSession._jsparkSession)
    found, changed = rewriter.plan(plan)
    if not changed:
        return frame
    jvm: Any = frame.sparkSession._jvm
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(frame.sparkSession._jsparkSession, found), frame.sparkSession)


class _Rewriter:
    """Puts expressions of a resolved plan anew, from the leaves up."""

    def __init__(self, jvm: Any, session: Any) -> None:
        self._jvm = jvm
        self._parser = session.sessionState().sqlParser()
        # What takes the place of what; Spark takes a map for a partial function.
        self._places = jvm.java.util.HashMap()

    def plan(self, node: Any) -> tuple[Any, bool]:
        """The node of a plan, and whether it was changed."""
        children = [self.plan(child) for child in _listed(node.children())]
        changed = any(changed for _, changed in children)
        if changed:
            node = node.withNewChildren(self._sequence(child for child, _ in children))
        before = self._places.size()
        for expression in _listed(node.expressions()):
            self._expression(expression)
        if self._places.size() > before:
            node, changed = node.transformExpressionsUp(self._map(self._places)), True
        return node, changed

    def _expression(self, it: Any) -> tuple[Any, bool]:
        children = [self._expression(child) for child in _listed(it.children())]
        changed = any(changed for _, changed in children)
        new = it.withNewChildren(self._sequence(child for child, _ in children)) if changed else it
        found = self._replacement(it, new, [child for child, _ in children])
        if found is None:
            return new, changed
        self._places.put(new, found)
        return found, True

    def _replacement(self, it: Any, new: Any, children: list[Any]) -> Any | None:
        """What takes the place of an expression; its types are known as it was, its children are those it has now."""
        name = it.nodeName()
        if name in ("SecondsToTimestamp", "MillisToTimestamp"):
            return self._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(new)
        if name == "AggregateExpression":
            return self._sum(it, children)
        if name not in (*_BINARY, "IntegralDivide", "UnaryMinus", "Abs", "Floor", "Ceil", "Round", "BRound", "Cast"):
            return None
        type = it.dataType().sql().lower()
        if type not in _BYTES:
            return None
        a = children[0]
        was = _type(it.children().apply(0))
        if name == "Cast":
            number = was in _BYTES or was in ("float", "double") or was.startswith("decimal")
            narrows = number and _BYTES.get(was, 9) > _BYTES[type]
            return self._sql(f"try_cast(a as {type})", a=a) if narrows else None
        if name in _BINARY:
            return self._sql(_BINARY[name], a=a, b=children[1])
        if name == "IntegralDivide":
            if was.startswith("decimal"):
                # Divided by zero, both are null.
                fits = f"abs(cast(a / b as double)) < {_BEYOND}"
                return self._sql(f"if({fits}, a div b, cast(null as bigint))", a=a, b=children[1])
            return self._sql(f"if(b = -1 and a = {_LEAST}, cast(null as bigint), a div b)", a=a, b=children[1])
        if name == "UnaryMinus":
            return self._sql(f"try_subtract(cast(0 as {type}), a)", a=a)
        if name == "Abs":
            return self._sql(f"if(a < 0, try_subtract(cast(0 as {type}), a), a)", a=a)
        if name in ("Round", "BRound"):
            rounded = f"{name.lower()}(cast(a as decimal(20, 0)), b)"
            return self._sql(f"try_cast({rounded} as {type})", a=a, b=children[1])
        if was in ("float", "double"):
            fits = f"a >= -{_BEYOND} and a < {_BEYOND}"
            return self._sql(f"if({fits}, {name.lower()}(a), cast(null as bigint))", a=a)
        return None

    def _sum(self, it: Any, children: list[Any]) -> Any | None:
        sum = it.aggregateFunction()
        if sum.nodeName() != "Sum" or it.dataType().sql().lower() not in _BYTES:
            return None
        summed = sum.children().apply(0)
        if summed.nodeName() == "AttributeReference" and summed.name() == _COUNT:
            return None
        distinct = "distinct " if it.isDistinct() else ""
        new = children[0].children().apply(0)
        if it.filter().isDefined():
            return self._sql(f"try_sum({distinct}a) filter (where b)", a=new, b=children[1])
        return self._sql(f"try_sum({distinct}a)", a=new)

    def _sql(self, text: str, **holes: Any) -> Any:
        """An expression with others in the places of its columns."""
        places = self._jvm.java.util.HashMap()
        for name, expression in holes.items():
            places.put(self._parser.parseExpression(name), expression)
        return self._parser.parseExpression(text).transformUp(self._map(places))

    def _map(self, places: Any) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(places)

    def _sequence(self, items: Any) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(found)


def _type(expression: Any) -> str:
    return str(expression.dataType().sql()).lower()


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
