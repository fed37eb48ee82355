"""Definitions: everything that changes the meaning of a view changes its definition, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace import App, Feed, Topic, View
from tailrace.pipeline.analysis.definitions import definition

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "movie_id", "type": "long"}]}


def topic(**options: Any) -> Topic:
    return App("movies").topic("ratings", **{"value": "movie_id long, rating double", **options})


def view(source: Topic) -> View:
    return App("movies").view("averages", source, key="movie_id", columns={"rating": "avg(rating)"})


def test_a_view_without_newer_features_is_defined_as_it_always_was() -> None:
    """Checkpoints of earlier releases go on."""
    assert definition(view(topic().where("rating > 0").where("rating < 9")), 2) == {
        "kind": "aggregate",
        "topic": "ratings",
        "format": "json",
        "value": "movie_id long, rating double",
        "where": ["rating > 0", "rating < 9"],
        "key": ["movie_id"],
        "columns": {"rating": "avg(rating)"},
        "state-partitions": 2,
    }


@pytest.mark.parametrize(
    "changed",
    [
        topic(expect="rating > 0"),
        topic(key_format="long"),
        topic(value="movie_id long", format="long"),
        topic().with_columns(rating="rating / 2"),
        topic().with_columns(rating="rating / 2").where("rating > 0"),
        topic().where("rating > 0").with_columns(rating="rating / 2"),
        topic().dedupe(by="rating"),
        topic().dedupe(by=["rating", "movie_id"]),
        topic(value=None, format="avro", schema=json.dumps(SCHEMA)),
        topic().dedupe(header="id"),
        topic().dedupe(header="id", within="1 hour"),
        topic(key_format="json", key_schema="a long"),
        topic(key_format="avro", key_schema='"long"'),
    ],
    ids=range(13),
)
def test_each_feature_is_part_of_the_definition(changed: Topic) -> None:
    others = [topic(), topic().where("rating > 0"), topic().with_columns(rating="rating / 3")]
    for other in (*others, topic().where("rating > 0").with_columns(rating="rating / 4")):
        assert definition(view(changed), 2) != definition(view(other), 2)


def test_the_order_of_steps_is_part_of_the_definition() -> None:
    one = topic().where("rating > 0").with_columns(rating="rating / 2")
    two = topic().with_columns(rating="rating / 2").where("rating > 0")
    assert definition(view(one), 2) != definition(view(two), 2)


def test_an_avro_schema_counts_by_its_content_and_not_by_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "rating.avsc").write_text(json.dumps(SCHEMA, indent=4))
    in_file = topic(value=None, format="avro", schema=tmp_path / "rating.avsc")
    as_text = topic(value=None, format="avro", schema=json.dumps(SCHEMA))
    assert definition(view(in_file), 2) == definition(view(as_text), 2)
    other = topic(value=None, format="avro", schema=json.dumps({**SCHEMA, "name": "S"}))
    assert definition(view(as_text), 2) != definition(view(other), 2)


def test_every_kind_and_every_option_of_a_view_is_part_of_the_definition() -> None:
    app = App("movies")
    events = app.topic("ratings", value="movie_id long, rating double, at timestamp")
    table = app.table("movies", key="movie_id", value="title string")
    other = app.table("other", key="movie_id", value="title string")
    columns = {"n": "count(*)"}
    views: list[View | Feed] = [
        app.view("v", events, key="movie_id", columns=columns),
        app.view("v", events, key="movie_id", columns=columns, window="1 hour"),
        app.view("v", events, key="movie_id", columns=columns, window="1 hour", slide="1 minute"),
        app.view("v", events, key="movie_id", columns=columns, window="1 hour", at="at"),
        app.view("v", events, key="movie_id", columns=columns, window="1 hour", late="1 hour"),
        app.view("v", events, key="movie_id", columns=columns, window="1 hour", keep="1 hour"),
        app.latest("v", events, key="movie_id"),
        app.latest("v", events, key="movie_id", columns={"n": "rating"}),
        app.latest("v", table),
        app.latest("v", table.where("title is not null")),
        app.latest("v", app.views[0]),
        app.latest("v", app.views[0].where("n > 1")),
        app.join("v", {"a": table, "b": other}),
        app.join("v", {"b": table, "a": other}),
        app.join("v", {"a": table, "b": other}, how="left"),
        app.feed("v", events, key="movie_id"),
    ]
    texts = [json.dumps(definition(one, 2), sort_keys=True) for one in views]
    assert len(set(texts)) == len(texts)
    assert definition(views[0], 2, {"transform": "Project"}) != definition(views[0], 2)


def test_mode_and_changelog_are_no_part_of_the_definition() -> None:
    app = App("movies")
    events = app.topic("ratings", value="movie_id long")
    one = app.view("v", events, key="movie_id", columns={"n": "count(*)"})
    two = app.view("v", events, key="movie_id", columns={"n": "count(*)"}, mode="micro-batch", to="elsewhere")
    assert definition(one, 2) == definition(two, 2)
