"""The page of the movies example, in a real browser, from another origin than the gateway's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chromium import Browser
from gateway_process import GatewayProcess, Store, view
from tailrace.dev.redis_server import RedisServer

PAGES = Path(__file__).parents[2] / "examples" / "movies"
VIEW = "rating-averages"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and does not tell."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """The address of the example's files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(PAGES))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_table_of_the_example_is_live(site: str, redis_server: RedisServer, fresh: str, tmp_path: Path) -> None:
    browser = Browser(tmp_path)
    store = Store(redis_server.url, fresh, view(VIEW))
    store.publish_catalog()
    store.begin()

    def rate(version: int, rating: float) -> None:
        row = {"movie_id": 362, "rating": rating, "ratings": version}
        store.put(VIEW, "362", version, json.dumps(row).encode())

    rate(1, 8.5)
    gateway = GatewayProcess(tmp_path, redis_server.url, fresh)
    gateway.wait_ready()
    try:
        tab = browser.tab(f"{site}/averages.html?gateway={gateway.url}")
        tab.wait("document.querySelector('tbody').innerText === '362\\t8.50\\t1'", "the row")
        rate(2, 4.25)
        tab.wait("document.querySelector('tbody').innerText === '362\\t4.25\\t2'", "the update")
        assert tab.run("document.querySelector('#status').textContent") == "live"
    finally:
        browser.close()
        gateway.close()
