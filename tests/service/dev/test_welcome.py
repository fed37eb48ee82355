"""What `tailrace dev` shows of a running app: where to look, before there is a row and when there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_process import Store, view
from tailrace import App
from tailrace.dev import welcome
from tailrace.dev.data import opened
from tailrace.dev.redis_server import RedisServer
from tailrace.dev.screen import Screen
from tailrace.dev.welcome import Welcome
from tailrace.store.layout.keys import default_prefix


@pytest.fixture
def app(fresh: str) -> App:
    return App(f"movies-{fresh}")


@pytest.fixture
def shown(app: App, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Welcome]:
    """One that has no patience."""
    monkeypatch.setattr(welcome, "PATIENCE", -1.0)
    with opened(tmp_path / "data") as data:
        parts = (redis_server.url, default_prefix(app.name), "http://here", data, Screen())
        with Welcome(app, *parts) as found:
            yield found


def test_the_first_row_is_shown_also_where_it_comes_after_the_hint(
    app: App, shown: Welcome, redis_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ratings = app.topic("ratings", value="movie_id long, rating double")
    app.view("averages", ratings, key="movie_id", columns={"rating": "avg(rating)"})
    for expected in ("waiting for the first event on topic ratings", ""):
        shown.look()
        told = capsys.readouterr().out
        assert expected in told and bool(expected) == ("http://here/views/averages/KEY/events" in told)
    store = Store(redis_server.url, app.name, view("averages"))
    store.publish_catalog()
    store.begin()
    store.put("averages", "a/b", 1, b"{}")
    for expected in ("averages is live", ""):
        shown.look()
        told = capsys.readouterr().out
        assert expected in told and bool(expected) == ("http://here/views/averages/a%2Fb/events" in told)


def test_an_app_of_feeds_shows_where_a_client_follows(
    app: App, shown: Welcome, capsys: pytest.CaptureFixture[str]
) -> None:
    app.feed("notices", app.topic("sent", value="client string, text string"), key="client")
    shown.look()
    told = capsys.readouterr().out
    assert "http://here/feeds/notices/CLIENT/events" in told and "/views/" not in told
