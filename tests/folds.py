"""What each kind of view must hold after a history: folds in plain Python, without Spark and without product code.

Each fold takes the records of the source topics, partition by partition in the order of offsets, and gives
the rows by key: a text, or for several key columns a tuple. `kinds` declares the same views.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from histories import EVENTS, MINUTE, Record

Row = dict[str, Any]
Rows = dict[Any, Row]
History = Mapping[str, Iterable[Record]]
Fold = Callable[[History], Rows]

EVENT: dict[str, type] = {"k": str, "n": int, "x": float, "s": str, "note": str, "id": str, "at": int}
VALUES: dict[str, dict[str, type]] = {
    "a": {"title": str, "year": int},
    "b": {"score": float},
    "c": {"tag": str, "more": bool},
}


def parsed(value: bytes | None, fields: Mapping[str, type]) -> Row | None:
    """The declared fields of a JSON object; None if the value is not such an object."""
    try:
        found = json.loads((value or b"").decode(), parse_constant=_refuse)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    row = {name: found.get(name) for name in fields}
    return row if all(part is None or _is(part, fields[name]) for name, part in row.items()) else None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _is(part: object, kind: type) -> bool:
    if kind is float:
        return type(part) in (int, float)
    return type(part) is kind and not (kind is int and not -(2**63) <= part < 2**63)  # type: ignore[operator]


def events(history: History) -> Iterator[tuple[Record, Row]]:
    """The events that meet the topic's rule."""
    for record in history.get(EVENTS, ()):
        event = parsed(record.value, EVENT)
        if event is not None and (event["x"] is None or event["x"] >= 0):
            yield record, event


def grouped(found: Iterable[tuple[Record, Row]], *key: str) -> dict[Any, list[tuple[Record, Row]]]:
    """Events by key; those without a key are left out."""
    groups: dict[Any, list[tuple[Record, Row]]] = {}
    for record, event in found:
        values = tuple(event[name] for name in key)
        if None not in values:
            groups.setdefault(values[0] if len(values) == 1 else values, []).append((record, event))
    return groups


def known(found: Iterable[tuple[Record, Row]], name: str) -> list[Any]:
    return [event[name] for _, event in found if event[name] is not None]


def total(numbers: list[int]) -> int | None:
    return sum(numbers) if numbers else None


def aggregate(history: History) -> Rows:
    groups = grouped(((r, e) for r, e in events(history) if e["n"] is None or e["n"] != 13), "k")
    return {
        k: {
            "k": k,
            "mean": sum(xs) / len(xs) if (xs := known(found, "x")) else None,
            "events": len(found),
            "known": len(ns := known(found, "n")),
            "least": min(ns, default=None),
            "greatest": max(known(found, "s"), default=None),
            "total": total(ns),
        }
        for k, found in groups.items()
    }


def last(history: History) -> Rows:
    rows: Rows = {}
    for record, event in events(history):
        client = text(record.key)
        if client is not None:
            rows[client] = {"client": client, **event}
    return rows


def text(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def last_of(history: History) -> Rows:
    rows = {}
    for k, found in grouped(events(history), "k").items():
        _, event = max(found, key=lambda one: (one[0].timestamp, one[0].partition, one[0].offset))
        twice = None if event["n"] is None else event["n"] * 2
        rows[k] = {"k": k, "n": event["n"], "s": event["s"], "twice": twice}
    return rows


def windows(at: int, size: int, slide: int) -> list[int]:
    """The starts of the windows that a moment falls into; all in ms."""
    newest = at // slide * slide
    return [start for start in range(newest, newest - size, -slide) if start + size > at]


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def in_windows(found: Iterable[tuple[Record, Row]], size: int, slide: int) -> Iterator[tuple[Record, Row]]:
    for record, event in found:
        for start in windows(event["at"], size, slide) if event["at"] is not None else ():
            yield record, {**event, "window_start": iso(start), "window_end": iso(start + size)}


def tumbling(history: History) -> Rows:
    size = 10 * MINUTE
    groups = grouped(in_windows(events(history), size, size), "k", "window_start")
    return {
        (k, start): {
            "k": k,
            "window_start": start,
            "window_end": found[0][1]["window_end"],
            "events": len(found),
            "greatest": max(known(found, "n"), default=None),
        }
        for (k, start), found in groups.items()
    }


def sliding(history: History) -> Rows:
    groups = grouped(in_windows(events(history), 10 * MINUTE, 4 * MINUTE), "k", "n", "window_start")
    return {
        (k, n, start): {
            "k": k,
            "n": n,
            "window_start": start,
            "window_end": found[0][1]["window_end"],
            "events": len(found),
        }
        for (k, n, start), found in groups.items()
    }


def first_of(
    found: Iterable[tuple[Record, Row]], identity: Callable[[Record, Row], tuple[Any, ...]]
) -> Iterator[tuple[Record, Row]]:
    """The first event of each identity. An event that lacks a part of its identity is unlike any other."""
    seen = set()
    for record, event in found:
        told = identity(record, event)
        if None in told:
            yield record, event
        elif told not in seen:
            seen.add(told)
            yield record, event


def header(record: Record, name: str) -> str | None:
    return text(dict(record.headers).get(name))


def counted(found: Iterable[tuple[Record, Row]], *key: str) -> Rows:
    return {
        k: {
            **dict(zip(key, k if len(key) > 1 else (k,), strict=True)),
            "events": len(group),
            "total": total(known(group, "n")),
        }
        for k, group in grouped(found, *key).items()
    }


def usable(history: History, *key: str, kept: Callable[[Row], bool] = lambda _: True) -> Iterator[tuple[Record, Row]]:
    """Events that are not skipped. An event that lacks a key is skipped, unless a condition leaves it out first."""
    return ((r, e) for r, e in events(history) if not kept(e) or None not in [e[name] for name in key])


def deduped(history: History) -> Rows:
    def kept(event: Row) -> bool:
        return event["n"] is not None

    firsts = first_of(usable(history, "k", "s", kept=kept), lambda _, event: (event["id"],))
    return counted(((r, e) for r, e in firsts if kept(e)), "k", "s")


def deduped_by_header(history: History) -> Rows:
    return counted(first_of(usable(history, "k"), lambda record, _: (header(record, "message-id"),)), "k")


def deduped_within(history: History) -> Rows:
    return counted(first_of(usable(history, "k"), lambda _, event: (event["id"], event["n"])), "k")


def feed(history: History) -> list[tuple[str, int, int, Row]]:
    """The events of a feed: key, source partition, version and row."""
    return [
        (event["k"], record.partition, record.offset + 1, {name: event[name] for name in ("k", "n", "note")})
        for record, event in events(history)
        if event["n"] is not None and event["n"] >= 0 and event["k"] is not None
    ]


def table(history: History, name: str) -> Rows:
    """What a table holds: the last readable value of each key; a null value deletes."""
    rows: Rows = {}
    for record in history.get(name, ()):
        key = text(record.key)
        if key is None:
            continue
        if record.value is None:
            rows.pop(key, None)
        elif (value := parsed(record.value, VALUES[name])) is not None:
            rows[key] = value
    return rows


def recent(history: History) -> Rows:
    rows = table(history, "a")
    return {k: {"id": k, **row} for k, row in rows.items() if row["year"] is not None and row["year"] >= 2000}


def shown(history: History) -> Rows:
    return {k: row for k, row in table(history, "c").items() if row["tag"] is not None and row["tag"] != "hidden"}


def joined(how: str, tables: Mapping[str, Rows]) -> dict[Any, dict[str, Row | None]]:
    """The rows of each table under each key that the join has."""
    names = list(tables)
    found = {}
    for key in set().union(*tables.values()):
        has = [key in tables[name] for name in names]
        if all(has) or (how == "left" and has[0]) or how == "outer":
            found[key] = {name: tables[name].get(key) for name in names}
    return found


def of(row: Row | None, name: str) -> Any:
    return None if row is None else row[name]


def two(how: str) -> Fold:
    def fold(history: History) -> Rows:
        found = joined(how, {"a": table(history, "a"), "b": table(history, "b")})
        return {
            k: {"id": k, "title": of(row["a"], "title"), "year": of(row["a"], "year"), "score": of(row["b"], "score")}
            for k, row in found.items()
        }

    return fold


def three(how: str) -> Fold:
    def fold(history: History) -> Rows:
        found = joined(how, {"a": table(history, "a"), "b": table(history, "b"), "c": shown(history)})
        return {
            k: {
                "id": k,
                "about": (of(row["a"], "title") or "?")[:20],
                "score": of(row["b"], "score"),
                "tag": of(row["c"], "tag"),
            }
            for k, row in found.items()
        }

    return fold


def averages(history: History) -> Rows:
    return {
        k: {"k": k, "mean": sum(xs) / len(xs) if (xs := known(found, "x")) else None, "events": len(found)}
        for k, found in grouped(events(history), "k").items()
    }


def good(history: History) -> Rows:
    return {
        k: {**row, "label": k + "!"}
        for k, row in averages(history).items()
        if row["mean"] is not None and row["mean"] >= 5
    }


def enriched(history: History) -> Rows:
    found = joined("left", {"rated": averages(history), "a": recent(history)})
    return {k: {"k": k, "mean": of(row["rated"], "mean"), "year": of(row["a"], "year")} for k, row in found.items()}


OVER_EVENTS: dict[str, Fold] = {
    "aggregate": aggregate,
    "last": last,
    "last-of": last_of,
    "tumbling": tumbling,
    "sliding": sliding,
    "deduped": deduped,
    "deduped-by-header": deduped_by_header,
    "deduped-within": deduped_within,
}
OVER_TABLES: dict[str, Fold] = {
    "recent": recent,
    **{f"two-{how}": two(how) for how in ("inner", "left", "outer")},
    **{f"three-{how}": three(how) for how in ("inner", "left", "outer")},
    "averages": averages,
    "good": good,
    "enriched": enriched,
}
