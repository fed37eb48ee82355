"""Mistakes that are seen without Spark: each has its place, what was expected and what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace import App, Table, Topic
from tailrace.declarations.checks import find_mistakes
from tailrace.declarations.mistakes import Mistake


def movies() -> App:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long, rating double")
    app.view("averages", ratings, key="movie_id", columns={"rating": "avg(rating)"})
    return app


def topic_of(app: App) -> Topic:
    topic = app.topics[0]
    assert isinstance(topic, Topic)
    return topic


def only(app: App) -> Mistake:
    (mistake,) = find_mistakes(app)
    return mistake


def test_a_good_app_has_none() -> None:
    assert find_mistakes(movies()) == []


def test_a_second_view_of_one_name_is_told_with_the_place_of_the_first() -> None:
    app = movies()
    first = app.views[0].place
    app.view("averages", topic_of(app), key="movie_id", columns={"n": "count(*)"})
    assert str(first) in only(app).got


def test_a_view_without_a_key_is_told_at_its_line() -> None:
    app = movies()
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    app.view("keyless", topic_of(app), columns={"n": "count(*)"})
    mistake = only(app)
    assert mistake.place.line == line and mistake.place.file == __file__
    assert "a key" in mistake.expected and 'key="movie_id"' in mistake.remedy


def test_two_views_with_one_changelog_are_told() -> None:
    app = movies()
    app.view("other", topic_of(app), key="movie_id", columns={"n": "count(*)"}, to="averages")
    assert "changelog" in only(app).expected


def test_a_changelog_that_is_also_a_source_is_told() -> None:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long")
    app.view("averages", ratings, key="movie_id", columns={"n": "count(*)"}, to="ratings")
    assert "not declared as a topic" in only(app).expected


def test_unknown_formats_hostile_names_and_reserved_columns_are_told() -> None:
    app = App("mo/vies")
    topic = app.topic("rat ings", value="movie_id long", format="xml")
    app.view("a:b", topic, key="movie_id", columns={"_n": "count(*)", "movie_id": "max(movie_id)"})
    text = "\n".join(str(mistake) for mistake in find_mistakes(app))
    for part in ("'mo/vies'", "'rat ings'", "'xml'", "'a:b'", "'_n'", "both in key and in columns"):
        assert part in text


def test_clients_may_write_to_topics_of_every_format() -> None:
    app = movies()
    for format in ("json", "string", "long", "double", "bytes"):
        app.topic(f"a-{format}", value="it string", format=format, accept=True)
    app.topic("films", format="avro", schema="{}", key_format="avro", key_schema='"long"', accept=True)
    app.topic("people", format="avro", registry=True, accept=True)
    assert list(find_mistakes(app)) == []


def test_declaring_copies_the_columns_so_that_later_changes_do_not_reach_the_view() -> None:
    columns = {"rating": "avg(rating)"}
    app = App("movies")
    view = app.view("averages", app.topic("ratings", value="movie_id long"), key="movie_id", columns=columns)
    columns["later"] = "count(*)"
    assert isinstance(view.columns, Mapping) and dict(view.columns) == {"rating": "avg(rating)"}


def test_where_leaves_the_declared_topic_as_it_was() -> None:
    app = movies()
    topic = topic_of(app)
    narrowed = topic.where("rating > 5").with_columns(half="rating / 2").where("half < 4")
    assert [type(step).__name__ for step in narrowed.steps] == ["Where", "WithColumns", "Where"]
    assert topic.steps == () and narrowed.place == topic.place


def test_each_step_has_its_own_place() -> None:
    topic = topic_of(movies())
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
    shared = topic_of(app).with_columns(_half="rating / 2")
    app.view("one", shared, key="movie_id", columns={"n": "count(*)"})
    app.view("two", shared, key="movie_id", columns={"n": "count(*)"})
    mistake = only(app)
    assert mistake.place.line == line and "'_half'" in mistake.got


def test_a_second_dedupe_and_one_with_two_kinds_of_ids_are_told() -> None:
    app = movies()
    topic = topic_of(app)
    app.view("one", topic.dedupe("rating", header="id", within="soon"), key="movie_id", columns={"n": "count(*)"})
    app.view("two", topic.dedupe("rating").dedupe("movie_id"), key="movie_id", columns={"n": "count(*)"})
    both, within, second = find_mistakes(app)
    assert "in columns or in a header" in both.expected and "within='soon'" in within.got
    assert "one dedupe at most" in second.expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "json"}, "a schema of the value"),
        ({"format": "string"}, "a schema of the value"),
        ({"format": "avro"}, "an Avro schema"),
        ({"format": "avro", "schema": "a.avsc", "value": "a long"}, "schema=… alone"),
        ({"format": "json", "schema": "a.avsc", "value": "a long"}, "schema=… with the format 'avro' only"),
        ({"format": "json", "value": "a long", "key_format": "xml"}, "a key_format out of json, avro, string"),
        ({"format": "json", "value": "a long", "key_format": "json"}, "a schema of the key, which is json"),
        ({"format": "json", "value": "a long", "key_schema": "b long"}, "a plain key"),
        ({"format": "json", "value": "a long", "registry": True}, "Avro values or keys"),
    ],
)
def test_options_of_a_topic_that_do_not_fit_are_told(options: dict[str, Any], expected: str) -> None:
    app = movies()
    app.topic("other", **options)
    assert only(app).expected.startswith(expected)


def test_declaring_an_avro_topic_reads_no_file() -> None:
    topic = App("movies").topic("ratings", format="avro", schema=Path("/nowhere/ratings.avsc"))
    assert topic.schema == "/nowhere/ratings.avsc"


def table_of(app: App, name: str = "movies", **options: Any) -> Table:
    return app.table(name, **{"key": "movie_id", "value": "title string", **options})


@pytest.mark.parametrize(
    ("declare", "expected"),
    [
        (lambda app: app.view("v", table_of(app), key="movie_id", columns={"n": "count(*)"}), "a topic, because"),
        (lambda app: app.view("v", app.views[0], key="movie_id", columns={"n": "count(*)"}), "a topic, because"),
        (lambda app: app.view("v", "ratings", key="movie_id", columns={"n": "count(*)"}), "a topic, because"),
        (lambda app: app.latest("v", table_of(app), key="title"), "the key of the table 'movies': movie_id"),
        (lambda app: app.latest("v", app.views[0].where("rating > 1"), key="rating"), "the key of the view 'averages'"),
        (lambda app: app.latest("v", topic_of(app)), "a key"),
        (lambda app: app.latest("v", topic_of(app), key="movie_id", columns={}), "at least one column"),
        (lambda app: app.latest("v", topic_of(app), key="movie_id", mode="fast"), "the mode real-time or micro-batch"),
        (lambda app: app.join("v", {"movie": table_of(app)}), "two tables or more"),
        (lambda app: app.join("v", {"movie": table_of(app), "other": topic_of(app)}), "tables or views"),
        (lambda app: app.join("v", {"movie_id": table_of(app), "a": app.views[0]}), "a name that is no key column"),
        (lambda app: app.join("v", {"a": table_of(app), "b": app.views[0]}, how="cross"), "how=… out of inner, left"),
        (lambda app: _window(app, window="soon"), "a duration such as"),
        (lambda app: _window(app, window="1 hour", keep="0s"), "a duration such as"),
        (lambda app: _window(app, window="1 hour", columns={"window_end": "max(rating)"}), "each column once"),
        (lambda app: table_of(app, key=[]), "a key"),
        (lambda app: table_of(app, key=["a", "b"]), "one key column for a plain record key"),
        (lambda app: app.feed("f", table_of(app), key="movie_id"), "a topic, because a feed"),
        (lambda app: app.feed("f", topic_of(app), key="movie_id", hold="long"), "a duration such as"),
        (lambda app: app.feed("f", topic_of(app), key="movie_id", retain="never"), "retain=… out of"),
        (lambda app: app.feed("f", topic_of(app), key="movie_id", length=0), "a whole number above zero"),
        (lambda app: app.feed("f", topic_of(app), key="movie_id", length=True), "a whole number above zero"),
        (lambda app: app.feed("f", topic_of(app), key="movie_id", age="0s"), "a duration such as"),
        (lambda app: app.feed("averages", topic_of(app), key="movie_id"), "each feed declared once"),
    ],
)
def test_a_view_or_feed_that_does_not_fit_its_source_is_told(declare: Callable[[App], object], expected: str) -> None:
    app = movies()
    declare(app)
    assert only(app).expected.startswith(expected), str(only(app))


def _window(app: App, **options: Any) -> None:
    app.view("v", topic_of(app), key="movie_id", **{"columns": {"n": "count(*)"}, **options})
