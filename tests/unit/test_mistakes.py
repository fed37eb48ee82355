"""Mistakes that are seen without Spark: each has its place, what was expected and what to do."""

from __future__ import annotations

import inspect

from tailrace import App
from tailrace.mistakes import Mistake, find_mistakes


def movies() -> App:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long, rating double")
    app.view("averages", ratings, key="movie_id", columns={"rating": "avg(rating)"})
    return app


def only(app: App) -> Mistake:
    (mistake,) = find_mistakes(app)
    return mistake


def test_a_good_app_has_none() -> None:
    assert find_mistakes(movies()) == []


def test_a_second_view_of_one_name_is_told_with_the_place_of_the_first() -> None:
    app = movies()
    first = app.views[0].place
    app.view("averages", app.topics[0], key="movie_id", columns={"n": "count(*)"})
    assert str(first) in only(app).got


def test_a_view_without_a_key_is_told_at_its_line() -> None:
    app = movies()
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    app.view("keyless", app.topics[0], columns={"n": "count(*)"})
    mistake = only(app)
    assert mistake.place.line == line and mistake.place.file == __file__
    assert "a key" in mistake.expected and 'key="movie_id"' in mistake.remedy


def test_two_views_with_one_changelog_are_told() -> None:
    app = movies()
    app.view("other", app.topics[0], key="movie_id", columns={"n": "count(*)"}, to="averages")
    assert "changelog" in only(app).expected


def test_a_changelog_that_is_also_a_source_is_told() -> None:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long")
    app.view("averages", ratings, key="movie_id", columns={"n": "count(*)"}, to="ratings")
    assert "also a source" in only(app).got


def test_unknown_formats_hostile_names_and_reserved_columns_are_told() -> None:
    app = App("mo/vies")
    topic = app.topic("rat ings", value="movie_id long", format="xml")
    app.view("a:b", topic, key="movie_id", columns={"_n": "count(*)", "movie_id": "max(movie_id)"})
    text = "\n".join(str(mistake) for mistake in find_mistakes(app))
    for part in ("'mo/vies'", "'rat ings'", "'xml'", "'a:b'", "'_n'", "both in key and in columns"):
        assert part in text


def test_declaring_copies_the_columns_so_that_later_changes_do_not_reach_the_view() -> None:
    columns = {"rating": "avg(rating)"}
    app = App("movies")
    view = app.view("averages", app.topic("ratings", value="movie_id long"), key="movie_id", columns=columns)
    columns["later"] = "count(*)"
    assert dict(view.columns) == {"rating": "avg(rating)"}


def test_where_leaves_the_declared_topic_as_it_was() -> None:
    app = movies()
    (topic,) = app.topics
    narrowed = topic.where("rating > 5").where("rating < 8")
    assert narrowed.conditions == ("rating > 5", "rating < 8") and topic.conditions == ()
