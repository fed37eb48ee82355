"""Topics change under a running app, or while it is down: no row is stale without a word, and none for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from operating import Operator
from running import Tailrace, eventually
from sse import Follower
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

TABLES = ("tp_prospects", "tp_accounts", "tp_enrichment_accounts")
JOIN = """
from tailrace import App

app = App("movies-{fresh}")
tables = {{
    name: app.table(f"{{name}}-{fresh}", key="id", key_format="string", value=f"{{name}} int")
    for name in ("tp_prospects", "tp_accounts", "tp_enrichment_accounts")
}}
app.join("clients-{fresh}", tables)
"""
LATEST = """
from tailrace import App

app = App("movies-{fresh}")
accounts = app.table("accounts-{fresh}", key="id", value="n int")
other = app.table("other-{fresh}", key="id", value="m int")
latest = app.latest("latest-{fresh}", accounts)
app.latest("over-{fresh}", latest)
app.join("joined-{fresh}", {{"accounts": accounts, "other": other}}, how="left")
ratings = app.topic("events-{fresh}", value="k string")
app.view("counts-{fresh}", ratings, key="k", columns={{"n": "count(*)"}})
"""

New = Callable[[str], Tailrace]


@pytest.fixture
def new(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[New]:
    """Makes an app of a module; it is stopped at the end."""
    made: list[Tailrace] = []

    def make(module: str) -> Tailrace:
        made.append(Tailrace(tmp_path / "app", broker, redis_server, fresh, module.format(fresh=fresh)))
        return made[-1]

    yield make
    for app in made:
        app.stop()


def put(app: Tailrace, topic: str, key: object, **value: int) -> None:
    app.produce(value or None, key=str(key).encode(), topic=topic)


def kill_jvm(app: Tailrace) -> None:
    part = app.parts.pop("pipeline")
    for child in Path(f"/proc/{part.pid}/task/{part.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    eventually(lambda: not part.running, "the pipeline ends when its JVM has ended")
    part.kill()


def batches(app: Tailrace, view: str) -> float:
    return app.metrics("pipeline").get(f'tailrace_batches_total{{view="{view}"}}', 0)


def ended(app: Tailrace, view: str) -> None:
    before = batches(app, view)
    eventually(lambda: batches(app, view) > before, "a batch ends")


def ready(app: Tailrace) -> dict[str, Any]:
    """What the gateway's health says; it must be ready."""
    response = httpx.get(f"{app.url}/health/ready", timeout=10)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def degraded(app: Tailrace) -> dict[str, str]:
    return {one["view"]: one["reason"] for one in ready(app)["degraded"]}


def status(app: Tailrace) -> dict[str, Any]:
    command = [sys.executable, "-m", "tailrace", "status", app.app, "--json"]
    command += ["--kafka", app.broker.address, "--redis", app.redis.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return {view["view"]: view for view in json.loads(done.stdout)["views"]}


def everywhere(app: Tailrace, view: str, n: int) -> None:
    """Every one of twenty keys has this number."""
    eventually(lambda: all((app.row(key, view) or {}).get("n") == n for key in range(20)), f"every row of {view}: {n}")


def test_tables_are_compacted_between_a_kill_and_the_restart_of_a_join(new: New, broker: Broker, fresh: str) -> None:
    app, operator, view = new(JOIN), Operator(broker), f"clients-{fresh}"
    topics = [f"{name}-{fresh}" for name in TABLES]
    for topic in topics:
        operator.create(topic, 2, cleanup_policy="compact")
    app.start_all("--batch-interval", "60s")
    put(app, topics[0], 1, tp_prospects=0)
    ended(app, view)
    # Just after the boundary: fifty updates of one table, one of each other.
    for n in range(1, 51):
        put(app, topics[0], 3, tp_prospects=n)
    put(app, topics[1], 3, tp_accounts=1)
    put(app, topics[2], 3, tp_enrichment_accounts=1)
    served = {"id": "3", "tp_prospects": 50, "tp_accounts": 1, "tp_enrichment_accounts": 1}
    eventually(lambda: app.row(3, view) == served, "the row before the kill")
    kill_jvm(app)
    for topic in topics:
        operator.compact(topic)
    app.start_pipeline("--batch-interval", "60s")
    app.wait_ready("pipeline")
    put(app, topics[1], 3, tp_accounts=2)
    eventually(lambda: app.row(3, view) == {**served, "tp_accounts": 2}, "the new value", 60)


@pytest.mark.parametrize("policy", ["rebuild", "refuse"])
def test_partitions_are_added_to_a_table(new: New, broker: Broker, fresh: str, policy: str) -> None:
    app, operator = new(LATEST), Operator(broker)
    accounts, views = f"accounts-{fresh}", [f"{name}-{fresh}" for name in ("latest", "over", "joined")]
    for topic in (accounts, f"other-{fresh}", f"events-{fresh}"):
        operator.create(topic, 2)
    app.start_all("--new-partitions", policy)
    for n in range(10):
        for key in range(20):
            put(app, accounts, key, n=n)
    app.produce({"k": "1"}, topic=f"events-{fresh}")
    eventually(lambda: all((app.row(key, v) or {}).get("n") == 9 for key in range(20) for v in views), "the first rows")
    followers = [Follower(f"{app.row_url(key, views[0])}/events") for key in range(20)]

    operator.add_partitions(accounts, 6)
    log = app.directory / "pipeline.log"
    eventually(lambda: f"topic {accounts}: has 6 partitions now" in log.read_text(), "it is noticed", 20)
    # By a producer that knows of them; one that does not goes on in the old partitions for some minutes.
    app.connect_producer()
    for key in range(20):
        put(app, accounts, key, n=100)
    if policy == "refuse":
        eventually(lambda: views[0] in degraded(app), "health tells of the view")
        assert "partitions were added" in degraded(app)[views[0]] and views[2] in degraded(app)
        assert "partitions were added" in "".join(status(app)[views[0]]["degraded"])
        assert f"reads {views[0]}" in degraded(app)[views[1]] and f"counts-{fresh}" not in degraded(app)
        command = [sys.executable, "-m", "tailrace", "rebuild", app.app]
        for view in (views[0], views[2]):
            subprocess.run([*command, view, "--execute", "--kafka", broker.address], check=True, timeout=120)
    for view in views:
        everywhere(app, view, 100)
    eventually(lambda: degraded(app) == {}, "nothing is stale any more")
    for follower in followers:
        follower.wait(lambda f: f.rows[-1]["n"] == 100)
        shown = [row["n"] for row in follower.rows]
        assert shown == sorted(shown), f"a row went back: {shown}"
        follower.close()
    # It goes on, also after a restart, and for keys that are back in an old partition.
    for key in range(20):
        put(app, accounts, key, n=101)
    eventually(lambda: all((app.row(key, views[0]) or {}).get("n") == 101 for key in range(20)), "live rows")
    if policy == "refuse":
        return
    kill_jvm(app)
    app.start_pipeline("--new-partitions", policy)
    for key in range(20):
        put(app, accounts, key, n=102)
    for view in views:
        everywhere(app, view, 102)
    eventually(lambda: (app.row(1, f"counts-{fresh}") or {}).get("n") == 1, "an aggregate has gone on")


def test_partitions_are_added_to_changelogs(new: New, broker: Broker, fresh: str) -> None:
    """Rows stay in the partitions that readers look for them in: of views, of views that read them, of joins."""
    app, operator = new(LATEST), Operator(broker)
    accounts, views = f"accounts-{fresh}", [f"{name}-{fresh}" for name in ("latest", "over", "joined")]
    app.start_all()
    for key in range(20):
        put(app, accounts, key, n=1)
    for view in views:
        everywhere(app, view, 1)
    for view in views:
        operator.add_partitions(view, 5)
    log = app.directory / "pipeline.log"
    used = [f"its changelog {view} has 5 partitions, and 2 of them are used" for view in views]
    eventually(lambda: all(text in log.read_text() for text in used), "it is noticed", 20)
    for key in range(20):
        put(app, accounts, key, n=2)
    for view in views:
        everywhere(app, view, 2)
    kill_jvm(app)
    app.start_pipeline()
    app.kill("materializer")
    app.start_materializer()
    for key in range(20):
        put(app, accounts, key, n=3)
    for view in views:
        everywhere(app, view, 3)
        assert {partition for partition, *_ in operator.records(view)} == {0, 1}
    assert degraded(app) == {}
    assert app.metrics("pipeline")[f'tailrace_topic_partitions{{topic="{views[0]}"}}'] == 5


def test_retention_overtakes_the_open_batch_of_an_aggregate(tailrace: Tailrace) -> None:
    operator = Operator(tailrace.broker)
    tailrace.start_all("--batch-interval", "20s")
    tailrace.rate([(7, 4)] * 10)
    eventually(
        lambda: tailrace.metrics("pipeline")[f'tailrace_inputs_total{{view="{tailrace.view}"}}'] == 10, "a batch"
    )
    # The open batch serves twenty more, and all that the topic holds is removed before it ends.
    tailrace.rate([(7, 10)] * 20)
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 30, "rows of the open batch")
    kill_jvm(tailrace)
    operator.remove_records(tailrace.topic)
    tailrace.rate([(7, 1)] * 5)
    tailrace.start_pipeline("--batch-interval", "20s")
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 15, "the row moves on with what is left", 120)
    assert f"view {tailrace.view}: 20 records were removed" in (tailrace.directory / "pipeline.log").read_text()
    tailrace.wait_ready("pipeline")
    tailrace.rate([(7, 1)])
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 16, "a live rating")


@pytest.mark.campaign("the ordinary run has it for a later batch")
def test_retention_overtakes_the_first_batch_of_an_aggregate(tailrace: Tailrace) -> None:
    operator = Operator(tailrace.broker)
    tailrace.start_all("--batch-interval", "60s")
    tailrace.rate([(7, 10)] * 20)
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 20, "rows of the first batch")
    kill_jvm(tailrace)
    operator.remove_records(tailrace.topic)
    tailrace.rate([(7, 1)] * 5)
    tailrace.start_pipeline()
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 5, "the row moves on with what is left", 120)
