"""`tailrace check`: every mistake with file, line, what was expected and what to do; nothing runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from running import PATIENCE

GOOD = """
from tailrace import App
app = App("movies")
ratings = app.topic("ratings", value="movie_id long, rating double, tags array<string>")
averages = app.view("averages", ratings.where("rating > 0"), key=["movie_id"], columns={"rating": "avg(rating)"})
"""

BAD = """
from tailrace import App
app = App("movies")
ratings = app.topic("ratings", value="movie_id long, rating double, tags array<string>")
broken = app.topic("broken", value="movie_id longg")
one = app.view("one", ratings.where("ratin > 0"), key="movie_id", columns={"rating": "avg(ratingg)"})
two = app.view("one", ratings, key="movie_id", columns={"a": "count(*", "b": "rating", "c": "nosuch(rating)"})
three = app.view("three", ratings, columns={"n": "count(*)"})
four = app.view("four", ratings, key="movie", columns={"n": "count(*)"})
five = app.view("five", ratings, key="tags", columns={"n": "count(*)"})
"""

SOURCES = """
from tailrace import App
app = App("movies")
names = app.topic("names", value="name string", format="string", key_format="long", expect="length(name) > 0")
films = app.topic("films", format="avro", schema="film.avsc")
shared = (
    names.with_columns(id="_key", kind="_headers['__TypeId__']")
    .where("kind = 'name' and _timestamp > timestamp '2020-01-01' and _partition + _offset >= 0 and _topic <> ''")
)
one = app.view("one", shared, key="id", columns={"name": "max_by(name, _offset)"})
unique = films.where("rating.score > 1").dedupe(by=["rating", "_key"])
two = app.view("two", unique, key="film_id", columns={"n": "count(*)", "a": "max(at)"})
"""

FILM = """
{"type": "record", "name": "Film", "fields": [
  {"name": "film_id", "type": "long"},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
  {"name": "rating", "type": ["null", {"type": "record", "name": "Rating", "fields": [
    {"name": "score", "type": "double"}]}], "default": null}]}
"""

BAD_OUTPUTS = """
from pyspark.sql import functions as F
from tailrace import App
app = App("movies")
ratings = app.topic("ratings", value="movie_id long, rating double")
movies = app.table("movies", key="movie_id", key_format="long", value="title string")
others = app.table("others", key="name", value="title string")
shops = app.table("shops", key=["shop", "city"], key_format="json", key_schema="shop long", value="a long")
def twice(column):
    return F.udf(lambda x: x * 2)(column)
app.view("a", ratings, key="movie_id", columns=lambda: {"n": F.max(twice("rating"))})
app.view("b", ratings, key="movie_id", columns={"n": "count(*)"}, transform=lambda f: f.select("movie_id"))
app.view("c", ratings, key="movie_id", columns={"n": "count(*)"}, transform=lambda f: f.dropDuplicates(["rating"]))
app.view("d", ratings, key="movie_id", columns={"n": "count(*)"}, transform=lambda f: f.nothing())
app.view("e", ratings, key="movie_id", columns={"n": "count(*)"}, window="1 hour", at="rating")
app.join("f", {"one": movies, "two": movies})
app.join("g", {"one": movies, "two": others}, columns={"a": "one.title"})
app.view("h", ratings, key="movie_id", columns=lambda: {"n": 1})
app.latest("i", ratings, key="movie_id", columns={"n": "count(*)", "m": "ratingg"})
app.feed("j", ratings, key="client")
app.latest("k", app.views[0])
app.join("l", {"one": movies, "two": app.latest("m", movies)}, columns={"a": "one.title || two.titel"})
towns = app.table("towns", key=["a", "b"], key_format="avro", key_schema='"long"', value="c long")
"""

EVERY_KIND = (Path(__file__).parents[3] / "examples" / "shop" / "shop.py").read_text()

BAD_SOURCES = """
from tailrace import App
app = App("movies")
names = app.topic("names", value="name long", format="string")
pairs = app.topic("pairs", value="a long, b long", format="long")
films = app.topic("films", format="avro", schema="nowhere.avsc")
shows = app.topic("shows", format="avro", schema='{"type": "record", "name": "Show"}')
plays = app.topic("plays", format="avro", schema='"double"')
ratings = app.topic("ratings", value="movie_id long, rating double", expect="ratin > 0")
shared = (
    ratings.where("rating + 1")
    .with_columns(half="ratinng / 2", next="movie_id + 1", many="explode(array(1, 2))")
    .where("half > next and many > 0")
    .with_columns(next="nextt")
    .dedupe(by=["rating", "_headers", "nobody"])
)
one = app.view("one", shared, key="next", columns={"n": "count(half)"})
two = app.view("two", shared.where("nope"), key="_key", columns={"n": "count(__kept)"})
three = app.view("three", ratings.with_columns(raw="unhex('00')"), key="raw", columns={"n": "count(*)"})
"""


def check(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    (directory / "movies.py").write_text(text)
    command = [sys.executable, "-m", "tailrace", "check", "movies:app"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_good_app_passes(tmp_path: Path) -> None:
    found = check(tmp_path, GOOD)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.endswith("movies: 1 view, no mistakes\n")


def test_every_mistake_is_found_in_one_run_with_its_line_and_the_remedy(tmp_path: Path) -> None:
    found = check(tmp_path, BAD)
    assert found.returncode == 1 and found.stdout == ""
    expected = [
        (5, "topic 'broken'", "a schema as DDL text", "movie_id longg"),
        (6, "view 'one', column 'rating'", "over the columns movie_id, rating", "avg(ratingg)"),
        (6, "topic 'ratings'", "a condition over the columns movie_id, rating", "ratin > 0"),
        (7, "view 'one'", "each view declared once", "movies.py:6"),
        (7, "view 'one', column 'a'", "an aggregate", "count(*"),
        (7, "view 'one', column 'b'", "an aggregate", "'rating'"),
        (7, "view 'one', column 'c'", "an aggregate", "nosuch(rating)"),
        (8, "view 'three'", "a key", "none"),
        (9, "view 'four'", "movie_id, rating, tags", "'movie'"),
        (10, "view 'five'", "a plain type", "array<string>"),
    ]
    told = [line for line in found.stderr.splitlines() if "movies.py:" in line and ": expected " in line]
    assert len(told) == len(expected), found.stderr
    for line, subject, wanted, got in expected:
        matching = [text for text in told if text.startswith(f"{tmp_path}/movies.py:{line}: {subject}: expected ")]
        assert any(wanted in text and got in text for text in matching), (line, subject, found.stderr)
    assert found.stderr.rstrip().endswith("10 mistakes found")
    assert "Did you mean" in found.stderr and "`rating`" in found.stderr
    assert "\tat " not in found.stderr and "WARN" not in found.stderr, "the JVM's noise reached the terminal"


def test_formats_metadata_and_steps_pass(tmp_path: Path) -> None:
    (tmp_path / "film.avsc").write_text(FILM)
    found = check(tmp_path, SOURCES)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.endswith("movies: 2 views, no mistakes\n")


def test_the_examples_in_the_page_on_sources_pass(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sources.md").read_text()
    (tmp_path / "film.avsc").write_text(FILM)
    found = check(tmp_path, "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.endswith("movies: 1 view, no mistakes\n")


def test_every_mistake_in_a_chain_of_steps_is_told_once_at_its_own_line(tmp_path: Path) -> None:
    found = check(tmp_path, BAD_SOURCES)
    expected = [
        (4, "topic 'names'", "one field of type string", "name long"),
        (5, "topic 'pairs'", "one field of type bigint", "a long, b long"),
        (6, "topic 'films'", "an Avro record schema", "nowhere.avsc"),
        (7, "topic 'shows'", "an Avro record schema", "Show"),
        (8, "topic 'plays'", "an Avro record schema", "double"),
        (9, "topic 'ratings'", "a condition over the columns movie_id, rating", "expect='ratin > 0'"),
        (11, "topic 'ratings'", "a condition", "where('rating + 1')"),
        (12, "topic 'ratings', column 'half'", "an expression over the columns movie_id, rating", "ratinng"),
        (12, "topic 'ratings', column 'many'", "an expression", "explode"),
        (14, "topic 'ratings', column 'next'", "over the columns movie_id, rating, half, next, many", "nextt"),
        (15, "topic 'ratings'", "a column to dedupe by", "_headers"),
        (15, "topic 'ratings'", "a column to dedupe by", "nobody"),
        (18, "topic 'ratings'", "a condition", "where('nope')"),
        (18, "view 'two'", "a column name that starts with a letter", "'_key'"),
        (18, "view 'two', column 'n'", "an aggregate", "__kept"),
        (19, "view 'three'", "a key that has a text", "'raw' of type binary"),
    ]
    told = [line for line in found.stderr.splitlines() if "movies.py:" in line and ": expected " in line]
    for line, subject, wanted, got in expected:
        matching = [text for text in told if text.startswith(f"{tmp_path}/movies.py:{line}: {subject}: expected ")]
        assert any(wanted in text and got in text for text in matching), (line, subject, found.stderr)
    assert len(told) == len(expected), found.stderr
    assert f"can't read {tmp_path}/nowhere.avsc" in found.stderr and "no fields" in found.stderr
    assert "\tat " not in found.stderr and "WARN" not in found.stderr, "the JVM's noise reached the terminal"


def test_a_missing_module_is_told_in_one_line_without_starting_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tailrace", "check", "nowhere:app"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode == 1 and len(found.stderr.splitlines()) == 1 and "nowhere" in found.stderr


def test_every_mistake_in_views_and_feeds_is_told_at_its_own_line(tmp_path: Path) -> None:
    found = check(tmp_path, BAD_OUTPUTS)
    expected = [
        (8, "table 'shops'", "key columns out of the fields of key_schema=…: shop", "'city'"),
        (11, "view 'a'", "Spark's own functions, because real-time mode runs no Python per row", "a Python function"),
        (12, "view 'b'", "a transform that leaves the metadata columns", "drops _timestamp, _partition, _offset"),
        (13, "view 'c'", "a transform without state", "Deduplicate"),
        (14, "view 'd'", "a transform from data frame to data frame", "nothing"),
        (15, "view 'e'", "at=… to name a column of type timestamp", "'rating' of type double"),
        (16, "view 'f'", "columns with different names", "'title' of both 'one' and 'two'"),
        (17, "view 'g'", "key columns of type bigint", "'name' of 'two' of type string"),
        (18, "view 'h'", "a function that gives name", "{'n': 1}"),
        (19, "view 'i', column 'n'", "an expression over one event", "which needs several"),
        (19, "view 'i', column 'm'", "an expression over the columns movie_id, rating", "ratingg"),
        (20, "feed 'j'", "a key out of the topic's columns movie_id, rating", "'client'"),
        (22, "view 'l', column 'a'", "an expression over the columns movie_id, one, two", "two.titel"),
        (23, "table 'towns'", "one key column for a key that is no record", "a, b"),
    ]
    told = [line for line in found.stderr.splitlines() if "movies.py:" in line and ": expected " in line]
    for line, subject, wanted, got in expected:
        matching = [text for text in told if text.startswith(f"{tmp_path}/movies.py:{line}: {subject}: expected ")]
        assert any(wanted in text and got in text for text in matching), (line, subject, found.stderr)
    assert len(told) == len(expected), found.stderr
    assert 'mode="micro-batch"' in found.stderr, "the alternative to real time"
    assert "\tat " not in found.stderr and "WARN" not in found.stderr, "the JVM's noise reached the terminal"


def test_a_good_app_is_told_with_mode_task_slots_and_columns(tmp_path: Path) -> None:
    found = check(tmp_path, EVERY_KIND.replace('"customers", orders', '"customers", orders, mode="micro-batch"'))
    assert (found.returncode, found.stderr) == (0, "")
    told = {line.split()[0]: line.split(maxsplit=4)[1:] for line in found.stdout.splitlines()[1:-1]}
    # With two partitions each: a task per partition of each topic, of each dedupe and of each state.
    assert told["customers"] == ["aggregate", "micro-batch", "0", "customer_id string, orders bigint, spent double"]
    assert told["hourly-sales"][:3] == ["window", "real-time", "6"]
    assert told["last-orders"][:3] == ["latest", "real-time", "6"]
    assert told["offers"] == ["latest", "real-time", "2", "product_id string, name string, price double, sold boolean"]
    assert told["available"][:3] == ["join", "real-time", "6"]
    assert told["running-out"][:3] == ["latest", "real-time", "2"]
    assert told["order-events"][:3] == ["feed", "real-time", "4"]


def test_explain_shows_what_a_view_reads_keeps_and_writes(tmp_path: Path) -> None:
    (tmp_path / "movies.py").write_text(EVERY_KIND)
    command = [sys.executable, "-m", "tailrace", "explain", "movies:app", "available"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    for part in ("join available", "products (table)", "stock (table)", "by product_id", "StateStoreSave", "max_by"):
        assert part in found.stdout, found.stdout
