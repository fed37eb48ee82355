"""What is not there: answers that name only what the client may know of."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.gateway.catalog import Known
from tailrace.gateway.problems import Problem, unavailable


def no_catalog(known: Known) -> Problem:
    """A 503: nothing is known of the app yet."""
    return unavailable(
        "no catalog yet",
        "Ask again in a moment; if it lasts, see whether Redis, the pipeline and the materializer run.",
        expected="the catalog of the app in Redis",
        got=known.problem or "none",
    )


def unknown_view(name: str, expected: Sequence[str] = ()) -> Problem:
    """A 404: the catalog has no such view; `expected` are those that the client may know of."""
    return Problem(
        404,
        "unknown view",
        view=name,
        expected=sorted(expected),
        remedy="Take one of the expected views, or declare this one and start the pipeline.",
    )


def unknown_feed(name: str, expected: Sequence[str] = ()) -> Problem:
    """A 404: the catalog has no such feed; `expected` are those that the client may know of."""
    return Problem(
        404,
        "unknown feed",
        feed=name,
        expected=sorted(expected),
        remedy="Take one of the expected feeds, or declare this one and start the pipeline.",
    )
