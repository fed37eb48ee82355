"""The views of the benchmark in Tailrace; the environment says which one, and the names of its topics."""

from __future__ import annotations

import os
from typing import Any

from tailrace import App

PREFIX = os.environ.get("BENCH_PREFIX", "")
OUTPUT = os.environ.get("BENCH_OUTPUT", "output")
# Of the view's own choice where empty.
MODE = {"mode": os.environ["BENCH_MODE"]} if os.environ.get("BENCH_MODE") else {}


def declare(kind: str) -> App:
    """An app with the one view of a kind, whose changelog is named by the environment."""
    app: Any = App(os.environ.get("BENCH_APP", "bench"))
    KINDS[kind](app)
    found: App = app
    return found


def aggregate(app: Any) -> None:
    """Average and count per movie."""
    ratings = app.topic(PREFIX + "ratings", value="movie_id long, rating double")
    app.view(OUTPUT, ratings, key="movie_id", columns={"rating": "avg(rating)", "ratings": "count(*)"}, **MODE)


def latest(app: Any) -> None:
    """The last position of each vehicle."""
    positions = app.table(PREFIX + "positions", key="vehicle", value="lat double, lon double")
    app.latest(OUTPUT, positions, **MODE)


def window(app: Any) -> None:
    """Average and count per movie and minute."""
    ratings = app.topic(PREFIX + "ratings", value="movie_id long, rating double, at timestamp")
    app.view(
        OUTPUT,
        ratings,
        key="movie_id",
        window="1 minute",
        at="at",
        late="10 minutes",
        keep="1 hour",
        columns={"rating": "avg(rating)", "ratings": "count(*)"},
        **MODE,
    )


def join(app: Any) -> None:
    """Title and score of each movie that has both."""
    movies = app.table(PREFIX + "movies", key="movie_id", value="title string")
    scores = app.table(PREFIX + "scores", key="movie_id", value="score double")
    columns = {"title": "movie.title", "score": "score.score"}
    app.join(OUTPUT, {"movie": movies, "score": scores}, how="inner", columns=columns, **MODE)


def feed(app: Any) -> None:
    """The notices among all events, by client."""
    events = app.topic(PREFIX + "events", value="client_id string, kind string, number long")
    app.feed(OUTPUT, events.where("kind = 'notice'"), key="client_id", **MODE)


KINDS = {"aggregate": aggregate, "latest": latest, "window": window, "join": join, "feed": feed}

app = declare(os.environ.get("BENCH_KIND", "aggregate"))
