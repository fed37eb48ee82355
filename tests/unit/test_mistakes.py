"""Mistakes that are seen without Spark: each has its place, what was expected and what to do."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

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
    narrowed = topic.where("rating > 5").with_columns(half="rating / 2").where("half < 4")
    assert [type(step).__name__ for step in narrowed.steps] == ["Where", "WithColumns", "Where"]
    assert topic.steps == () and narrowed.place == topic.place


def test_each_step_has_its_own_place() -> None:
    (topic,) = movies().topics
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    steps = (
        topic.where("rating > 5")
        .with_columns(half="rating / 2")
        .where("half < 4")
    ).steps  # fmt: skip
    assert [step.place.line for step in steps] == [line, line + 1, line + 2]


def test_a_step_that_two_views_share_is_told_once_at_its_place() -> None:
    app = movies()
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    shared = app.topics[0].with_columns(_half="rating / 2")
    app.view("one", shared, key="movie_id", columns={"n": "count(*)"})
    app.view("two", shared, key="movie_id", columns={"n": "count(*)"})
    mistake = only(app)
    assert mistake.place.line == line and "'_half'" in mistake.got


def test_a_dedupe_by_nothing_and_a_second_one_are_told() -> None:
    app = movies()
    app.view("one", app.topics[0].dedupe(by=[]), key="movie_id", columns={"n": "count(*)"})
    app.view("two", app.topics[0].dedupe("rating").dedupe("movie_id"), key="movie_id", columns={"n": "count(*)"})
    none, second = find_mistakes(app)
    assert "a column to dedupe by" in none.expected and "one dedupe at most" in second.expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "json"}, "a schema of the value"),
        ({"format": "string"}, "a schema of the value"),
        ({"format": "avro"}, "an Avro schema"),
        ({"format": "avro", "schema": "a.avsc", "value": "a long"}, "schema=… alone"),
        ({"format": "json", "schema": "a.avsc", "value": "a long"}, "schema=… with the format 'avro' only"),
        ({"format": "json", "value": "a long", "key_format": "json"}, "a key_format out of string, long"),
    ],
)
def test_options_of_a_topic_that_do_not_fit_are_told(options: dict[str, str], expected: str) -> None:
    app = movies()
    app.topic("other", **options)
    assert only(app).expected.startswith(expected)


def test_declaring_an_avro_topic_reads_no_file() -> None:
    topic = App("movies").topic("ratings", format="avro", schema=Path("/nowhere/ratings.avsc"))
    assert topic.schema == "/nowhere/ratings.avsc"
