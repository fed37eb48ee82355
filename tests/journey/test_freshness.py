"""What `tailrace status` and the gateway say of a live view whose batch has not ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

DEDUPED = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic("ratings-{fresh}", value="movie_id long, rating double, id string").dedupe(by="id")
app.view("rating-averages-{fresh}", ratings, key="movie_id", columns={{"ratings": "count(*)"}})
"""


def test_a_live_view_that_has_served_everything_is_not_behind_though_its_batch_goes_on(tailrace: Tailrace) -> None:
    tailrace.start_all("--batch-interval", "10m")
    command = [sys.executable, "-m", "tailrace", "status", tailrace.app]
    command += ["--kafka", tailrace.broker.address, "--redis", tailrace.redis.url]

    def told() -> dict[str, Any]:
        said = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
        (found,) = json.loads(said)["views"]
        return dict(found)

    for n in range(5):
        tailrace.rate([(n, 8)])
        eventually(lambda n=n: tailrace.row(n) is not None, "the row")  # type: ignore[misc]
    eventually(lambda: told()["behind"] == 0, "everything has been served")
    found = told()
    assert (found["mode"], found["inputs"], found["behind_estimated"]) == ("live", 0, True), "no batch has ended"
    assert found["delay"] is not None and found["delay"]["rows"] == 5 and found["degraded"] == []
    ready = httpx.get(f"{tailrace.url}/health/ready", timeout=30).json()
    assert ready["degraded"] == [] and ready["views"][tailrace.view]["delay"]["rows"] == 5
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "delay p50 / max" in table and "estimate by timestamp" in table


def test_the_size_of_the_state_is_shown_and_what_a_dedupe_remembers(
    tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str
) -> None:
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh, DEDUPED.format(fresh=fresh))
    try:
        app.start_all()
        app.produce(*[{"movie_id": 1, "rating": 1, "id": f"{n % 500}"} for n in range(1000)])
        eventually(lambda: (app.row(1) or {}).get("ratings") == 500, "each id once")
        sizes = {
            (part, place): f'tailrace_state_bytes{{part="{part}",place="{place}",view="{app.view}"}}'
            for part in ("rows", "dedupe")
            for place in ("disk", "memory")
        }

        def size(part: str) -> float:
            found = app.metrics("pipeline")
            return sum(found.get(sizes[part, place], 0) for place in ("disk", "memory"))

        eventually(lambda: size("rows") > 0 and size("dedupe") > 0, "a batch has ended, and the state has a size")
        command = [sys.executable, "-m", "tailrace", "status", app.app]
        command += ["--kafka", app.broker.address, "--redis", app.redis.url]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"{app.view}: dedupe remembers every id for ever: " in told and "state" in told.splitlines()[0], told
        assert "no batch has ended" not in told
    finally:
        app.stop()
