"""The URLs of a running app, printed once they show something."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tailrace.declarations.app import App
from tailrace.dev.data import Data
from tailrace.dev.screen import Screen
from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.writer import StoreWriter

PATIENCE = 15.0


class Welcome:
    """Prints the URLs with the key of the first row of any view; once with a hint if that takes long."""

    def __init__(self, app: App, redis: str, prefix: str, url: str, data: Data, screen: Screen) -> None:
        self._app = app
        self._url = url
        self._data = data
        self._screen = screen
        self._store = StoreWriter(redis, prefix)
        self._deadline = time.monotonic() + PATIENCE
        self._hinted = self._said = False

    def look(self) -> None:
        """Print the URLs if it is time to. Call this again and again."""
        if self._said:
            return
        if (found := self._first_row()) is not None:
            view, key = found
            self._said = True
            self._print(f"{view} is live", self._row(view, quote(key, safe="")))
        elif not self._hinted and time.monotonic() > self._deadline:
            topics = ", ".join(sorted({s.name for s in self._app.topics}))
            self._hinted = True
            self._print(f"waiting for the first event on topic {topics}", self._place())

    def _place(self) -> list[tuple[str, str]]:
        """The URL that a row will have or, if the app has only feeds, the events of a client."""
        if self._app.views:
            return self._row(self._app.views[0].name, "KEY")
        name = quote(self._app.outputs[0].name, safe="")
        return [("follow", f"{self._url}/feeds/{name}/CLIENT/events")]

    def _row(self, view: str, key: str) -> list[tuple[str, str]]:
        row = f"{self._url}/views/{quote(view, safe='')}/{key}"
        return [("row", row), ("follow", f"{row}/events")]

    def _print(self, title: str, place: list[tuple[str, str]]) -> None:
        self._screen.addresses(
            title,
            [
                *place,
                ("docs", f"{self._url}/docs"),
                ("metrics", f"{self._url}/metrics"),
                ("logs", str(self._data.logs)),
            ],
        )
        self._screen.say("Ctrl-C stops everything.")

    def _first_row(self) -> tuple[str, str] | None:
        try:
            for view in self._app.views:
                for partition in range(self._store.partitions(view.name)):
                    if (key := self._store.some_key(view.name, partition)) is not None:
                        return view.name, key
        except Unavailable:
            pass
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()
