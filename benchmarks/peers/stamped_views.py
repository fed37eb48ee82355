"""Ratings that say when they were sent; the row passes the last time on, and how many ratings it has absorbed."""

from __future__ import annotations

from tailrace import App

app = App("stamped")
ratings = app.topic("ratings", value="movie_id long, rating double, at long")
app.view(
    "rating-averages",
    ratings,
    key="movie_id",
    columns={"rating": "avg(rating)", "n": "count(*)", "t": "max(at)"},
)
