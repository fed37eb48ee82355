"""A view is built anew: readers keep the old rows until the new ones are there, then get `reset` and the new rows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle import changelog
from running import MODULE, PATIENCE, Tailrace, eventually
from sse import Follower
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

WINDOWS = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", value="movie_id long, at timestamp")
app.view(
    "rating-averages-{fresh}", ratings, key="movie_id", window="10 seconds", at="at", late="1 day", keep="10 seconds",
    columns={{"n": "count(*)"}},
)
"""


def command(tailrace: Tailrace, name: str, *arguments: str) -> str:
    """What a command prints; it must succeed."""
    line = [sys.executable, "-m", "tailrace", name, tailrace.app, tailrace.view, *arguments]
    done = subprocess.run(
        [*line, "--kafka", tailrace.broker.address], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_changed_definition_is_shown_and_built_when_asked_for_while_readers_keep_the_old_rows(
    tailrace: Tailrace, fresh: str
) -> None:
    tailrace.start_all()
    tailrace.rate([(1, 4), (1, 8), (2, 3)])
    old = {"movie_id": 1, "rating": 6.0, "ratings": 2}
    eventually(lambda: tailrace.row(1) == old and tailrace.row(2) is not None, "the rows of the first generation")
    follower = Follower(f"{tailrace.row_url(1)}/events")
    gone = Follower(f"{tailrace.row_url(2)}/events")
    for one in (follower, gone):
        one.wait(lambda f: bool(f.rows))
    tailrace.parts.pop("pipeline").stop()

    changed = MODULE.format(fresh=fresh).replace("avg(rating)", "max(rating)").replace("between 0", "between 4")
    (tailrace.directory / "movies.py").write_text(changed)
    tailrace.start_pipeline()
    pipeline = tailrace.parts.pop("pipeline")
    eventually(lambda: not pipeline.running, "the pipeline refuses the changed definition")
    told = pipeline.tail()
    pipeline.stop()
    assert (
        "avg(rating)" in told and "max(rating)" in told and f"tailrace rebuild {tailrace.app} {tailrace.view}" in told
    )
    assert tailrace.row(1) == old

    planned = command(tailrace, "rebuild")
    assert "nothing was done" in planned and "3 records" in planned
    assert "asked for" in command(tailrace, "rebuild", "--execute")
    tailrace.start_pipeline()
    new = {"movie_id": 1, "rating": 8.0, "ratings": 2}
    eventually(lambda: tailrace.row(1) == new, "the row of the second generation")
    follower.wait(lambda f: f.rows[-1:] == [new])
    assert follower.rows == [old, new], "no row in between"
    assert [frame.event for frame in follower.frames if frame.event == "reset"] == ["reset"]
    eventually(lambda: tailrace.row(2) is None, "a key that the new generation does not have is gone")
    gone.wait(lambda f: [frame.event for frame in f.frames if frame.event in ("reset", "gone")][:1] == ["reset"])
    eventually(lambda: changelog(tailrace.broker.address, tailrace.view)["2"][-1].row is None, "a tombstone for it")

    # Live on the new state.
    tailrace.rate([(1, 10)])
    follower.wait(lambda f: f.rows[-1:] == [{"movie_id": 1, "rating": 10.0, "ratings": 3}])
    for one in (follower, gone):
        one.close()


def test_a_reset_while_running_begins_where_it_says_and_leaves_nothing_of_before(tailrace: Tailrace) -> None:
    tailrace.start_all()
    tailrace.rate([(1, 4), (2, 8)])
    eventually(lambda: tailrace.row(1) is not None and tailrace.row(2) is not None, "the rows of the first generation")
    follower = Follower(f"{tailrace.row_url(1)}/events")
    follower.wait(lambda f: bool(f.rows))
    command(tailrace, "reset", "--to-latest", "--execute")
    eventually(lambda: tailrace.row(1) is None and tailrace.row(2) is None, "nothing is left of what was before")
    tailrace.rate([(1, 9)])
    fresh_row = {"movie_id": 1, "rating": 9.0, "ratings": 1}
    follower.wait(lambda f: f.rows[-1:] == [fresh_row])
    # From the beginning again.
    command(tailrace, "reset", "--to-earliest", "--execute")
    eventually(lambda: tailrace.row(1) == {"movie_id": 1, "rating": 6.5, "ratings": 2}, "all ratings again")
    eventually(lambda: tailrace.row(2) == {"movie_id": 2, "rating": 8.0, "ratings": 1}, "the other movie, too")
    written = changelog(tailrace.broker.address, tailrace.view)["1"]
    # A tombstone of the hand-over, version 0, may stand behind a row that was just written: it is added once more.
    ranks = [(record.generation, record.version) for record in written]
    rows = [rank for rank in ranks if rank[1] > 0]
    assert ranks[-1] == max(ranks) == (3, 2) and rows == sorted(rows)
    follower.close()


@pytest.fixture
def windows(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, WINDOWS.format(fresh=fresh))
    yield app
    app.stop()


def test_the_row_of_a_closed_window_expires(windows: Tailrace) -> None:
    windows.start_all()
    now = int(time.time())
    start = now - now % 10
    at, key = (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start)),
        time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(start)),
    )
    windows.produce({"movie_id": 7, "at": at})
    eventually(lambda: windows.row(f'[7,"{key}"]') is not None, "the row of the open window")
    eventually(lambda: windows.row(f'[7,"{key}"]') is None, "it is gone after its time")
    assert time.time() >= start + 20, "it was gone too early"
    written = changelog(windows.broker.address, windows.view)[f'[7,"{key}"]']
    assert [record.row is None for record in written] == [False, True]
