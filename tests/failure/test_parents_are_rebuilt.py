"""A view is built anew while others read it: they have the generation that is served, and the next one as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from running import PATIENCE, Tailrace, eventually
from sse import Follower
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

SMALL = """
from tailrace import App

app = App("movies-{fresh}")
events = app.topic("events-{fresh}", value="k string")
app.view("counts-{fresh}", events, key="k", columns={{"n": "count(*)"}})
"""
MODULE = """
from tailrace import App

app = App("movies-{fresh}")
events = app.topic("events-{fresh}", value="k string")
names = app.table("names-{fresh}", key="k", value="name string")
counts = app.view("counts-{fresh}", events, key="k", columns={{"n": "count(*)"}})
many = app.latest("many-{fresh}", counts.where("n is not null").with_columns(twice="concat(n, n)"))
app.join("named-{fresh}", {{"many": many, "name": names}}, how="left")
"""


@pytest.fixture
def app(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, MODULE.format(fresh=fresh))
    yield app
    app.stop()


def command(app: Tailrace, *arguments: str) -> str:
    """What a command prints; it must succeed."""
    line = [sys.executable, "-m", "tailrace", *arguments, "--kafka", app.broker.address]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=app.directory)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_children_see_the_served_generation_only_and_take_a_promoted_one_as_a_whole(app: Tailrace, fresh: str) -> None:
    counts, many, named = (f"{name}-{fresh}" for name in ("counts", "many", "named"))
    app.start_all()
    app.produce(*[{"k": "a"}] * 40, topic=f"events-{fresh}")
    app.produce({"name": "Ada"}, key=b"a", topic=f"names-{fresh}")
    eventually(lambda: (app.row("a", named) or {}).get("name") == "Ada", "the rows of the first generation")
    eventually(lambda: app.row("a", named) == {"k": "a", "n": 40, "twice": "4040", "name": "Ada"}, "all events")

    # A row of a generation that is not served, as a build writes it before it is complete.
    half_built = Producer({"bootstrap.servers": app.broker.address})
    half_built.produce(counts, b'{"k":"a","n":1}', b"a", headers={"g": b"7", "v": b"1", "t": b"1"})
    assert half_built.flush(30) == 0
    app.produce({"k": "a"}, topic=f"events-{fresh}")
    eventually(lambda: (app.row("a", named) or {}).get("n") == 41, "a later row of the served generation")

    followers = [Follower(f"{app.row_url('a', view)}/events") for view in (counts, many, named)]
    for follower in followers:
        follower.wait(lambda f: bool(f.rows))
    stop, sent = threading.Event(), 41

    def flow() -> None:
        nonlocal sent
        while not stop.wait(0.05):
            app.produce({"k": "a"}, topic=f"events-{fresh}")
            sent += 1

    flowing = threading.Thread(target=flow)
    flowing.start()
    try:
        told = command(app, "reset", app.app, counts, "--to-earliest", "--execute")
        assert f"because they read it: {many}, {named}" in told
        for follower in followers:
            follower.wait(lambda f: any(frame.event == "reset" for frame in f.frames))
            follower.wait(lambda f: f.rows[-1]["n"] > 41)
    finally:
        stop.set()
        flowing.join()
    for follower in followers:
        follower.wait(lambda f: f.rows[-1]["n"] == sent)
        shown = [row["n"] for row in follower.rows]
        assert shown == sorted(shown), f"a row went back: {shown}"
        # The old generation went on while the next one was built.
        assert [frame.event for frame in follower.frames].count("reset") == 1
        follower.close()
    eventually(lambda: app.row("a", named) == {"k": "a", "n": sent, "twice": f"{sent}" * 2, "name": "Ada"}, "the rows")
    log = (app.directory / "pipeline.log").read_text()
    for name in (counts, many, named):
        assert log.count(f"view {name}: generation 2 takes over") == 1, name


@pytest.fixture
def small(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, SMALL.format(fresh=fresh))
    yield app
    app.stop()


@pytest.mark.campaign("the ordinary run kills pipelines that build nothing")
def test_a_rebuild_is_killed_and_asked_for_again_at_any_moment(small: Tailrace, fresh: str) -> None:
    app, counts = small, f"counts-{fresh}"
    app.start_all()
    sent = 0

    def send(events: int) -> None:
        nonlocal sent
        app.produce(*[{"k": "a"}] * events, topic=f"events-{fresh}")
        sent += events

    def log() -> str:
        return (app.directory / "pipeline.log").read_text()

    def wait_for(text: str, times: int) -> None:
        eventually(lambda: log().count(text) >= times, f"{times} times in the log: {text}")

    send(20)
    eventually(lambda: app.row("a", counts) == {"k": "a", "n": 20}, "the rows of the first generation")
    follower = Follower(f"{app.row_url('a', counts)}/events")
    follower.wait(lambda f: bool(f.rows))
    # Killed when it was chosen, when it runs, and when it has just taken over.
    for moment in ("building generation", "is catching-up", "takes over"):
        moments = log().count(moment)
        command(app, "reset", app.app, counts, "--to-earliest", "--execute")
        wait_for(moment, moments + 1)
        app.kill("pipeline")
        send(3)
        app.start_pipeline()
        eventually(lambda: app.row("a", counts) == {"k": "a", "n": sent}, "rows move on")
        app.wait_ready("pipeline")
    # Asked for twice: the second request is for another generation, or for one that is begun already.
    for _ in range(2):
        command(app, "reset", app.app, counts, "--to-earliest", "--execute")
        send(3)
    eventually(lambda: app.row("a", counts) == {"k": "a", "n": sent}, "rows move on")

    def served() -> tuple[int, int | None]:
        (found,) = json.loads(command(app, "status", app.app, "--json", "--redis", app.redis.url))["views"]
        return found["generation"], found["building"]

    eventually(lambda: served()[1] is None, "nothing is being built any more")
    send(1)
    follower.wait(lambda f: f.rows[-1]["n"] == sent, PATIENCE)
    shown = [row["n"] for row in follower.rows]
    assert shown == sorted(shown), f"a row went back: {shown}"
    generations = {int(frame.id.split(".")[1]) for frame in follower.frames if frame.event == "row"}
    assert max(generations) == served()[0] > 2
    # Of each generation that readers had, one hand-over.
    resets = [frame.event for frame in follower.frames].count("reset")
    assert resets == len(generations) - 1, (resets, generations)
    follower.close()


def test_children_of_a_parent_whose_columns_change_are_rebuilt_with_it(app: Tailrace, fresh: str) -> None:
    counts, many, named = (f"{name}-{fresh}" for name in ("counts", "many", "named"))
    app.start_all()
    app.produce(*[{"k": "a"}] * 3, topic=f"events-{fresh}")
    eventually(lambda: (app.row("a", named) or {}).get("n") == 3, "the rows of the first generation")
    app.parts.pop("pipeline").stop()
    changed = MODULE.format(fresh=fresh).replace('"count(*)"', "\"concat(count(*), '!')\"")
    (app.directory / "movies.py").write_text(changed)
    told = command(app, "check", "movies:app")
    assert f"view {counts}: its definition is not the one that generation 1 was built from" in told
    assert f"view {many}: is built anew with it" in told and f"view {named}: is built anew with it" in told
    command(app, "rebuild", app.app, counts, "--execute")
    app.start_pipeline()
    eventually(lambda: (app.row("a", named) or {}).get("n") == "3!", "the rows of the second generation")
    assert (app.row("a", many) or {}).get("twice") == "3!3!"
    app.produce({"k": "a"}, topic=f"events-{fresh}")
    eventually(lambda: (app.row("a", named) or {}).get("n") == "4!", "live rows")
    log = (app.directory / "pipeline.log").read_text()
    assert f"view {named}: building generation 2, because it reads {many}" in log
