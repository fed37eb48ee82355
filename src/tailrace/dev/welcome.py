"""The URLs of a running app, printed once they show something."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tailrace.access.issuing import EVERYTHING
from tailrace.declarations.app import App
from tailrace.dev.data import Data
from tailrace.dev.locks import PRODUCER, Locks
from tailrace.dev.screen import Screen
from tailrace.operations.kafka_rights import OPERATOR
from tailrace.store.connection.outages import Unavailable
from tailrace.store.write.writer import StoreWriter

PATIENCE = 15.0
# How long the token that is printed lasts, in seconds; `tailrace token` gives another.
TOKEN_LASTS = 12 * 60 * 60.0


class Welcome:
    """Prints the URLs with the key of the first row of any view; once with a hint if that takes long.

    With locks it prints what opens them, too. authority: what clients have to trust, if their machine does not.
    """

    def __init__(
        self,
        app: App,
        redis: str,
        prefix: str,
        url: str,
        data: Data,
        screen: Screen,
        locks: Locks | None = None,
        authority: Path | None = None,
    ) -> None:
        self._app = app
        self._locks = locks
        self._authority = authority
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
        if self._locks is not None:
            title = (
                f"everything is locked, and this opens it; the token is for all of it, for {TOKEN_LASTS // 3600:.0f} h"
            )
            self._screen.addresses(title, self._keys(self._locks, place[0][1]))
        self._screen.say("\nCtrl-C stops everything.")

    def _keys(self, locks: Locks, url: str) -> list[tuple[str, str]]:
        """Lines for a shell: a request with a token that allows everything, and how to connect as others."""
        token = locks.issuer.token("dev", EVERYTHING, TOKEN_LASTS)
        tailrace, names = _command(), f"--views {shlex.quote(self._app.views[0].name)}" if self._app.views else "--all"
        data = (
            "" if self._data.directory == Path(".tailrace").absolute() else f" --data {_quoted(self._data.directory)}"
        )
        curl = "curl -N" if url.endswith("/events") else "curl"
        curl += f" --cacert {_quoted(self._authority)}" if self._authority is not None else ""
        operator, producer = (_quoted(locks.shell_file(user)) for user in (OPERATOR, PRODUCER))
        return [
            ("read", f"{curl} -H 'Authorization: Bearer {token}' {shlex.quote(url)}"),
            ("token", f"{tailrace} token{data} --sub ann {names}"),
            ("operate", f"(. {operator}; {tailrace} status {self._app.name})"),
            ("produce", f"(. {producer}; python PRODUCER.py)"),
            (
                "kafka tools",
                f"--bootstrap-server {locks.servers} --command-config {_quoted(locks.kafka_config(OPERATOR))}",
            ),
            ("browser", f"{self._url}/docs: Authorize takes a token; let it trust {locks.authority}"),
        ]

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


def _command() -> str:
    """What a shell calls this program by."""
    return "tailrace" if shutil.which("tailrace") else _quoted(Path(sys.executable).with_name("tailrace"))


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
