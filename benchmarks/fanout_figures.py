"""Arithmetic of `fanout`: delays in buckets, medians of rounds, ratios."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from load_client import Buckets

GOAL_CONNECTIONS = 1000
KEY, QUERY, FEED = "key", "query", "feed"
FOLLOWED = (KEY, QUERY, FEED)
OTHERS = ("centrifugo", "nchan", "limit")
# Figures of a trial of which a table shows the median of the rounds.
RATES = ("per_s", "per_core_s", "single_per_s", "single_per_core_s")
FINE = ("delivery_us", "idle_kb", "client_busy")


@dataclass(frozen=True, order=True)
class Load:
    """What a server was put under."""

    surface: str
    connections: int
    keys: int

    @property
    def name(self) -> str:
        """Such as `sse_1000_1`."""
        return f"{self.surface}_{self.connections}_{self.keys}"


def at_share(buckets: Buckets, share: float) -> float | None:
    """The delay in ms that this share of all stayed within; None where there were none."""
    total = sum(count for _, count in buckets)
    seen = 0
    for top, count in sorted(buckets):
        seen += count
        if seen >= share * total:
            return round(top / 1e6, 3)
    return None


def merged(rounds: Iterable[Buckets]) -> Buckets:
    """The delays of several rounds together."""
    counts: Counter[int] = Counter()
    for buckets in rounds:
        for top, count in buckets:
            counts[top] += count
    return sorted(counts.items())


def summary(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The medians of a contender's rounds, and the percentiles of all its delays together."""
    found: dict[str, Any] = {}
    for name in (*RATES, *FINE):
        if values := [trial[name] for trial in trials if trial.get(name) is not None]:
            middle = median(values)
            found[name] = round(middle, 2) if name in FINE else round(middle)
    delays = merged(trial["delays"] for trial in trials if trial.get("delays"))
    if delays:
        found |= {"p50_ms": at_share(delays, 0.5), "p99_ms": at_share(delays, 0.99)}
    found["skipped"] = sum(trial.get("skipped", 0) for trial in trials)
    found["rounds"] = len(trials)
    return found


def tailrace_of(follow: str, *, tls: bool = False) -> str:
    """The contender's name where clients follow this: `tailrace` for a key, `tailrace-query`, `tailrace-feed-tls`."""
    return "tailrace" + ("" if follow == KEY else f"-{follow}") + ("-tls" if tls else "")


# What costs more than a key without TLS, and the contender that shows it.
_COSTLY = {QUERY: tailrace_of(QUERY), FEED: tailrace_of(FEED), "tls": tailrace_of(KEY, tls=True)}


def ratios(table: Mapping[Load, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Tailrace's rates by the others', by load; and of SSE on one key those that goals are set for.

    The goals' rates are per second of the server's processor: on two cores, clients, publisher and Redis need more of
    theirs than a server that joins rows, so that no server is busy all the time.
    """
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for load, servers in table.items():
        mine = servers.get("tailrace", {})
        for other in OTHERS:
            figures = servers.get(other, {})
            for figure in RATES:
                if mine.get(figure) and figures.get(figure):
                    found[load.name][f"{figure}_vs_{other}"] = round(mine[figure] / figures[figure], 3)
    goal = found.get(Load("sse", GOAL_CONNECTIONS, 1).name, {})
    told: dict[str, Any] = {}
    for other in OTHERS:
        told[f"ratio_{other}"] = goal.get(f"per_core_s_vs_{other}")
        told[f"ratio_{other}_single"] = goal.get(f"single_per_core_s_vs_{other}")
    return {**told, "ratios": dict(found)}


def costs(table: Mapping[Load, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The gateway's processor time per delivery of a query, of a feed and under TLS, by that of a key without TLS.

    By load, at the fixed rate, row by row and at the limit; and of SSE on one key that for which goals are set.
    """
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for load, servers in table.items():
        base = servers.get(tailrace_of(KEY), {})
        for what, contender in _COSTLY.items():
            figures = servers.get(contender, {})
            if base.get("delivery_us") and figures.get("delivery_us"):
                found[load.name][what] = round(figures["delivery_us"] / base["delivery_us"], 3)
            for rate, name in (("single_per_core_s", "single"), ("per_core_s", "saturated")):
                if base.get(rate) and figures.get(rate):
                    found[load.name][f"{what}_{name}"] = round(base[rate] / figures[rate], 3)
    goal = found.get(Load("sse", GOAL_CONNECTIONS, 1).name, {})
    return {**{f"cost_{what}": goal.get(what) for what in _COSTLY}, "costs": dict(found)}
