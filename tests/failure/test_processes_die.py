"""Processes die at bad moments; afterwards every row equals a recount, and no client saw a version go back."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from oracle import changelog, rating_averages
from running import Tailrace, eventually
from sse import Follower

MOVIES = 20


@contextmanager
def ratings_flowing(tailrace: Tailrace, seed: int) -> Iterator[None]:
    """Ratings of random movies, without a pause, until the block ends."""
    stop = threading.Event()
    chance = random.Random(seed)

    def produce() -> None:
        while not stop.is_set():
            tailrace.rate((chance.randrange(MOVIES), chance.randrange(11)) for _ in range(10))
            stop.wait(0.02)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def progressed(tailrace: Tailrace, at_least: int = 30) -> None:
    """Wait until some row has absorbed that many more ratings, so that the fault falls into live traffic."""
    start = (tailrace.row(1) or {}).get("ratings", 0)
    eventually(lambda: (tailrace.row(1) or {}).get("ratings", 0) >= start + at_least, "ratings are flowing")


def assert_whole(tailrace: Tailrace, followers: list[Follower]) -> None:
    """At quiet: rows equal the recount, the changelog ends with its highest versions, clients only went forward."""
    expected = rating_averages(tailrace.broker.address, tailrace.topic)
    assert len(expected) == MOVIES

    def rows() -> dict[str, object]:
        return {key: tailrace.row(key) for key in expected}

    eventually(lambda: rows() == expected, "every row equals the recount")
    for key, written in changelog(tailrace.broker.address, tailrace.view).items():
        best = max(record.version for record in written)
        assert written[-1].version == best, f"{key}: the newest record does not have the highest version"
        assert written[-1].row == expected[key]
    for follower in followers:
        key = follower.url.split("/")[-2]
        follower.wait(lambda f, key=key: f.rows[-1:] == [expected[key]])  # type: ignore[misc]
        versions = [row["ratings"] for row in follower.rows]
        assert versions == sorted(set(versions)), f"{follower.url}: a version came again or went back"
        follower.close()


def follow(tailrace: Tailrace) -> list[Follower]:
    return [Follower(f"{tailrace.row_url(movie)}/events") for movie in range(5)]


def test_pipeline_killed_in_the_middle_of_a_batch(tailrace: Tailrace) -> None:
    tailrace.start_all()
    followers = follow(tailrace)
    with ratings_flowing(tailrace, seed=1):
        for _ in range(2):
            progressed(tailrace)
            tailrace.kill("pipeline")
            tailrace.start_pipeline()
            tailrace.wait_ready("pipeline")
        progressed(tailrace)
    assert_whole(tailrace, followers)
    written = changelog(tailrace.broker.address, tailrace.view)
    repeats = sum(len(records) - len({r.version for r in records}) for records in written.values())
    assert repeats > 0, "the kill fell on a boundary: nothing was replayed, so nothing was tested"


def test_spark_jvm_killed(tailrace: Tailrace) -> None:
    tailrace.start_all()
    followers = follow(tailrace)
    with ratings_flowing(tailrace, seed=5):
        progressed(tailrace)
        pipeline = tailrace.parts.pop("pipeline")
        (jvm,) = Path(f"/proc/{pipeline.pid}/task/{pipeline.pid}/children").read_text().split()
        os.kill(int(jvm), signal.SIGKILL)
        eventually(lambda: not pipeline.running, "the pipeline ends when its JVM has ended")
        assert "Start the pipeline again" in pipeline.tail() and "Traceback" not in pipeline.tail()
        pipeline.stop()
        tailrace.start_pipeline()
        tailrace.wait_ready("pipeline")
        progressed(tailrace)
    assert_whole(tailrace, followers)


def test_materializer_killed_between_polls(tailrace: Tailrace) -> None:
    tailrace.start_all()
    followers = follow(tailrace)
    with ratings_flowing(tailrace, seed=2):
        for _ in range(4):
            progressed(tailrace)
            tailrace.kill("materializer")
            tailrace.start_materializer()
    assert_whole(tailrace, followers)


def test_redis_emptied_while_running(tailrace: Tailrace) -> None:
    tailrace.start_all()
    followers = follow(tailrace)
    client = redis.Redis.from_url(tailrace.redis.url)
    with ratings_flowing(tailrace, seed=3):
        for _ in range(3):
            progressed(tailrace)
            client.flushall()
        progressed(tailrace)
    # Once more at quiet: no new record comes that could tell the materializer.
    client.flushall()
    assert_whole(tailrace, followers)


def test_gateway_restarted_while_clients_follow(tailrace: Tailrace) -> None:
    tailrace.start_all()
    followers = follow(tailrace)
    with ratings_flowing(tailrace, seed=4):
        for _ in range(3):
            progressed(tailrace)
            tailrace.kill("gateway")
            tailrace.start_gateway()
    assert_whole(tailrace, followers)
    assert all(follower.connections > 1 for follower in followers)
    assert not [frame for follower in followers for frame in follower.frames if frame.event == "reset"]
