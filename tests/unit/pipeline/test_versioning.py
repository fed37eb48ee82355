"""By which rule versions and state are made: what an earlier release has built is built anew where that has changed."""

from __future__ import annotations

import pytest

from tailrace import App
from tailrace.declarations.views import View
from tailrace.pipeline.source.reading import readings
from tailrace.pipeline.view.plan import versioning


def _declared() -> dict[str, View]:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long, rating long")
    movies = app.table("movies", key="movie_id", value="title string")
    columns = {"n": "count(*)"}
    return {
        "aggregate": app.view("aggregate", ratings, key="movie_id", columns=columns),
        "window": app.view("window", ratings, key="movie_id", window="1 hour", columns=columns),
        "newest": app.latest("newest", ratings, key="movie_id"),
        "keyed": app.latest("keyed", ratings.with_columns(client="_key"), key="client"),
        "row": app.latest("row", movies),
    }


@pytest.mark.parametrize(("name", "rule"), [("aggregate", 3), ("window", 3), ("newest", 3), ("keyed", 1), ("row", 1)])
def test_a_view_with_state_has_the_rule_of_this_release(name: str, rule: int) -> None:
    view = _declared()[name]
    assert versioning(view, readings(view, {})) == rule
