"""`tailrace check`: every mistake with file, line, what was expected and what to do; nothing runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def check(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    (directory / "movies.py").write_text(text)
    command = [sys.executable, "-m", "tailrace", "check", "movies:app"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)


def test_a_good_app_passes(tmp_path: Path) -> None:
    found = check(tmp_path, GOOD)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "movies: 1 view, no mistakes\n"


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


def test_a_missing_module_is_told_in_one_line_without_starting_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tailrace", "check", "nowhere:app"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 1 and len(found.stderr.splitlines()) == 1 and "nowhere" in found.stderr
