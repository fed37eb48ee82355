"""Random queries and rows, each query in three spellings: ours, SQLite's and Spark's.

The spellings are built side by side, so that what SQLite or Spark says about a row is independent of our parser.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tailrace.contracts.catalog import Column

NOW = 1_790_000_000_123

COLUMNS = (
    Column("n", "int"),
    Column("big", "bigint"),
    Column("d", "double"),
    Column("s", "string"),
    Column("other text", "string"),
    Column("ok", "boolean"),
    Column("t", "timestamp"),
    Column("u", "timestamp"),
)


class Sql(NamedTuple):
    """One text in three spellings."""

    ours: str
    sqlite: str
    spark: str


def same(text: str) -> Sql:
    """A text with the same spelling everywhere."""
    return Sql(text, text, text)


def put(shape: str, *parts: Sql) -> Sql:
    """Put parts into a shape, in each spelling."""
    return Sql(*(shape.format(*(part[i] for part in parts)) for i in range(3)))


def iso(milliseconds: int) -> str:
    """A timestamp as Spark writes it in a row."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).strftime(
        "%Y-%m-%dT%H:%M:%S."
    ) + f"{milliseconds % 1000:03d}Z"


def _text(value: str) -> Sql:
    quoted = "'" + value.replace("'", "''") + "'"
    return Sql(quoted, quoted, "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'")


def _time(milliseconds: int) -> Sql:
    return Sql(f"timestamp '{iso(milliseconds)}'", str(milliseconds), f"timestamp '{iso(milliseconds)}'")


def _interval(milliseconds: int) -> Sql:
    return Sql(
        f"interval '{milliseconds} milliseconds'", str(milliseconds), f"interval '{milliseconds / 1000:.3f}' second"
    )


NOW_CALL = Sql("now()", str(NOW), f"timestamp_millis({NOW})")
NULL = same("null")

small = st.integers(-4, 4)
large = st.sampled_from([2**63 - 1, 2**63 - 2, -(2**63), 2**53, 2**53 + 1, 0, 7])
quarters = st.integers(-8, 8).map(lambda n: n / 4)
words = st.text(alphabet="ab%_\\'é𐍈\n", max_size=3)
offsets = st.integers(-20, 20)
operators = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values and nulls."""
    return st.none() | values


rows = st.fixed_dictionaries(
    {
        "n": maybe(small),
        "big": maybe(large),
        "d": maybe(quarters),
        "s": maybe(words),
        "other text": maybe(words),
        "ok": maybe(st.booleans()),
        "t": maybe(offsets.map(lambda ms: iso(NOW + ms))),
        "u": maybe(offsets.map(lambda ms: iso(NOW + ms))),
    }
)


@st.composite
def numbers(draw: st.DrawFn, depth: int = 2, *, decimals: bool = True) -> Sql:
    """Columns, literals and arithmetic, with and without parentheses; quarters are exact as doubles and decimals."""
    kind = draw(st.integers(0, 7 if depth else 4))
    if kind == 0:
        return same("n")
    if kind == 1:
        return same(str(draw(small)))
    if kind == 2:
        return same("d")
    if kind == 3:
        return NULL if draw(st.integers(0, 9)) == 5 else same(f"{draw(quarters)!r}e0")
    if kind == 4:
        return same(f"{draw(quarters):.{draw(st.integers(2, 3))}f}" if decimals else "n")
    if kind == 5:
        # SQLite has no decimals, and divides integers differently.
        left, right = (draw(numbers(depth - 1, decimals=False)) for _ in range(2))
        return put("(({}) / ({}))", left, right)._replace(sqlite=f"(({left.sqlite}) * 1.0 / ({right.sqlite}))")
    left, right = (draw(numbers(depth - 1, decimals=decimals)) for _ in range(2))
    if kind == 6:
        return put("(- ({}))" if draw(st.booleans()) else "(0 - ({}))", left)
    shape = draw(st.sampled_from(["{} + ({})", "{} - ({})", "(({}) * ({}))", "({} - ({}))"]))
    return put("(" + shape + ")" if draw(st.booleans()) else shape, left, right)


remainders = st.builds(
    lambda a, b: put("{} % {}", same(a), same(b)), st.just("n"), st.sampled_from(["n", "3", "-2", "0"])
)
texts = (
    st.sampled_from([same("s"), Sql('"other text"', '"other text"', "`other text`")]) | words.map(_text) | st.just(NULL)
)
text_columns = st.sampled_from([same("s"), Sql("`other text`", '"other text"', "`other text`")])
moments = st.sampled_from([same("t"), same("u"), NOW_CALL]) | offsets.map(lambda ms: _time(NOW + ms))


@st.composite
def time_comparisons(draw: st.DrawFn) -> Sql:
    """Times with intervals on either side, and differences of two times."""
    operator = draw(operators)
    first, second, shift = draw(moments), draw(moments), _interval(draw(st.integers(0, 20)))
    if draw(st.booleans()) and first != second:
        return put(f"{{}} - {{}} {operator} {{}}", first, second, shift)
    sides = [put("{} " + draw(st.sampled_from("+-")) + " {}", side, shift) for side in (first, second)]
    left = sides[0] if draw(st.booleans()) else first
    right = sides[1] if draw(st.booleans()) else second
    return (
        put(f"{{}} {operator} {{}}", left, right)
        if first != second
        else put(f"{{}} {operator} {{}}", same("t"), NOW_CALL)
    )


@st.composite
def likes(draw: st.DrawFn) -> Sql:
    """LIKE with our default escape, which SQLite must be told, and with another."""
    column, literals = draw(text_columns), draw(st.lists(words, max_size=3))
    escape = draw(st.sampled_from(["\\", "!"]))
    parts = []
    for word in literals:
        parts += [
            draw(st.sampled_from(["%", "_", "%_", ""])),
            "".join(escape + c if c in ("%", "_", escape) else c for c in word),
        ]
    pattern = _text("".join(parts) + draw(st.sampled_from(["", "%"])))
    negation = draw(st.sampled_from(["", "not "]))
    told = put(f"{{}} {negation}like {{}} escape {{}}", column, pattern, _text(escape))
    return told if escape == "!" else told._replace(ours=f"{column.ours} {negation}like {pattern.ours}")


@st.composite
def tests(draw: st.DrawFn) -> Sql:
    """One test of a row."""
    kind, operator = draw(st.integers(0, 9)), draw(operators)
    negation = draw(st.sampled_from(["", "not "]))
    if kind == 0:
        return put(f"{{}} {operator} {{}}", draw(numbers()), draw(numbers()))
    if kind == 1:
        return put(f"big {operator} {{}}", draw(large.filter(lambda n: n != -(2**63)).map(lambda n: same(str(n)))))
    if kind == 2:
        return put(f"{{}} {operator} {{}}", draw(remainders), draw(small.map(lambda n: same(str(n)))))
    if kind == 3:
        return put(f"{{}} {operator} {{}}", draw(texts), draw(texts))
    if kind == 4:
        listed = draw(st.lists(small.map(lambda n: same(str(n))) | st.just(NULL), min_size=1, max_size=4))
        return put(f"n {negation}in (" + ", ".join(["{}"] * len(listed)) + ")", *listed)
    if kind == 5:
        listed = draw(st.lists(words.map(_text) | st.just(NULL), min_size=1, max_size=4))
        return put(f"s {negation}in (" + ", ".join(["{}"] * len(listed)) + ")", *listed)
    if kind == 6:
        return put(f"({{}}) {negation}between {{}} and {{}}", draw(numbers()), draw(numbers(0)), draw(numbers(0)))
    if kind == 7:
        return draw(time_comparisons())
    if kind == 8:
        return draw(likes())
    return draw(
        st.sampled_from(["n", "s", "t", "ok", "(n + d)"]).map(lambda name: same(f"{name} is {negation}null"))
        | st.sampled_from(["ok", "ok = true", "ok <> true", "true", "false", "ok is true", "ok is not false"]).map(same)
    )


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> Sql:
    """Tests with and, or, not and parentheses; optional parentheses may be missing."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(tests())
    if draw(st.integers(0, 3)) == 0:
        return put("not ({})", draw(conditions(depth - 1)))
    terms = [draw(conditions(depth - 1)) for _ in range(draw(st.integers(2, 3)))]
    shape = draw(st.sampled_from([" and ", " or "])).join(draw(st.sampled_from(["{}", "({})"])) for _ in terms)
    return put(shape, *terms)


@st.composite
def clocks(draw: st.DrawFn) -> Sql:
    """Comparisons with now(), joined."""
    shifts = [draw(st.sampled_from(["{}", "{} + {}", "{} - {}"])) for _ in range(2)]
    column, shift = same(draw(st.sampled_from("tu"))), _interval(draw(st.integers(0, 20)))
    comparison = put(f"{shifts[0]} {draw(operators)} ", column, shift), put(shifts[1], NOW_CALL, shift)
    terms = [put("{}{}", *comparison), draw(time_comparisons()), draw(tests())][: draw(st.integers(1, 3))]
    return put(draw(st.sampled_from([" and ", " or "])).join(["{}"] * len(terms)), *terms)
