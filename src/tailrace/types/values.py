"""Values from JSON as Avro has them: each is checked, and what is wrong is told with its place.

A value of a union stands as it is where one branch alone takes it; otherwise, and always if wanted, as Avro's own JSON
has it: an object whose one member is named like the branch. Bytes are base64.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from tailrace.types import avro_logical
from tailrace.types.avro_types import BITS, AvroType
from tailrace.types.spark_types import Mismatch, floating, got, is_text, within

# Texts and numbers are these before all others, so that what a value becomes does not depend on how it looks. Of
# numbers the narrowest whole type is the first, then the widest of the others.
_NATURAL = ("string", "int", "long", "double", "float")


def datum(of: AvroType, value: Any, where: str, wrong: list[Mismatch]) -> Any:
    """What is written for a value that was decoded from JSON, with decimals for fractions; adds what is wrong."""
    if of.kind == "union":
        return _of_union(of, value, where, wrong)
    if of.kind == "record":
        return _of_record(of, value, where, wrong)
    if of.kind == "array" and of.of is not None and isinstance(value, list):
        return [datum(of.of, one, f"{where}[{number}]", wrong) for number, one in enumerate(value)]
    if of.kind == "map" and of.of is not None and isinstance(value, dict):
        wrong += [Mismatch(where, "names of Unicode characters", got(name)) for name in value if not is_text(name)]
        return {name: datum(of.of, one, within(where, name), wrong) for name, one in value.items()}
    found = _plain(of, value)
    if found is None and of.kind != "null":
        wrong.append(Mismatch(where, expected(of), got(value)))
    elif of.kind == "null" and value is not None:
        wrong.append(Mismatch(where, "null", got(value)))
    return found


def expected(of: AvroType) -> str:
    """What a value of a type is, in words."""
    if of.logical:
        return avro_logical.expected(of)
    if of.kind == "union":
        return " or ".join(expected(branch) for branch in of.branches)
    if of.kind in BITS:
        return f"an integer of {BITS[of.kind]} bits"
    if of.kind == "enum":
        return f"one of {', '.join(of.symbols[:20])}{' …' if len(of.symbols) > 20 else ''}"
    if of.kind == "fixed":
        return f"{of.size} bytes in base64"
    return {
        "null": "null",
        "boolean": "true or false",
        "float": "a number that 32 bits can hold",
        "double": "a number that 64 bits can hold",
        "bytes": "bytes in base64",
        "string": "text",
        "array": "an array",
    }.get(of.kind, "an object")


def names_of(branch: AvroType) -> tuple[str, ...]:
    """What a member may be called that holds a value of a union's branch."""
    return tuple(dict.fromkeys((branch.branch, branch.branch.rpartition(".")[2])))


def _of_record(of: AvroType, value: Any, where: str, wrong: list[Mismatch]) -> Any:
    if not isinstance(value, dict):
        wrong.append(Mismatch(where, "an object", got(value)))
        return None
    fields = {field.name: field for field in of.fields}
    others = f"one of the fields {', '.join(fields)}"
    wrong += [Mismatch(within(where, name), others, "another name") for name in value if name not in fields]
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = datum(field.type, value[name], within(where, name), wrong)
        elif field.optional:
            found[name] = field.default
        else:
            wrong.append(Mismatch(within(where, name), expected(field.type), "nothing"))
    return found


def _of_union(of: AvroType, value: Any, where: str, wrong: list[Mismatch]) -> Any:
    if value is None and of.nullable:
        return ("null", None)
    branches = [branch for branch in of.branches if branch.kind != "null"]
    held: list[Mismatch] = []
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        named = next((branch for branch in branches if name in names_of(branch)), None)
        if named is not None:
            found, held = _attempt(named, inner, within(where, name))
            if not held:
                return (named.branch, found)
    tried = [(branch, *_attempt(branch, value, where)) for branch in branches]
    fitting = _preferred([(branch, found) for branch, found, problems in tried if not problems])
    if len(fitting) == 1:
        return (fitting[0][0].branch, fitting[0][1])
    if fitting:
        types = " and ".join(branch.branch for branch, _ in fitting)
        example = f'{{"{fitting[0][0].branch}": …}}'
        wrong.append(
            Mismatch(where, f"the type with the value, such as {example}", f"{got(value)}, which {types} take")
        )
    elif held:
        wrong.extend(held)
    else:
        # Where one branch alone could have been meant, what is wrong inside it says more.
        records = [problems for branch, _, problems in tried if branch.kind == "record" and isinstance(value, dict)]
        meant = [problems for _, _, problems in tried] if len(tried) == 1 else records
        wrong.extend(meant[0] if len(meant) == 1 else [Mismatch(where, expected(of), got(value))])
    return None


def _attempt(of: AvroType, value: Any, where: str) -> tuple[Any, list[Mismatch]]:
    wrong: list[Mismatch] = []
    return datum(of, value, where, wrong), wrong


def _preferred(fitting: list[tuple[AvroType, Any]]) -> list[tuple[AvroType, Any]]:
    """The branch that is what JSON calls the value; what else takes the same value is left as it is."""
    natural = [one for one in fitting if one[0].kind in _NATURAL and not one[0].logical]
    return [min(natural, key=lambda one: _NATURAL.index(one[0].kind))] if natural else fitting


def _plain(of: AvroType, value: Any) -> Any:
    """A value without parts as it is written; None where it is not of the type, and for null."""
    if of.logical:
        return avro_logical.logical(of, value)
    if of.kind in BITS:
        bits = BITS[of.kind]
        return value if type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None
    if of.kind in ("float", "double"):
        return floating(value, of.kind) if isinstance(value, int | Decimal) and type(value) is not bool else None
    if of.kind == "boolean":
        return value if isinstance(value, bool) else None
    if not isinstance(value, str) or of.kind in ("null", "array", "map"):
        return None
    if of.kind == "enum":
        return value if value in of.symbols else None
    if of.kind == "string":
        return value if is_text(value) else None
    try:
        data = base64.b64decode(value, validate=True)
    except ValueError:
        return None
    return data if of.kind == "bytes" or len(data) == of.size else None
