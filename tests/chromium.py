"""A real Chromium without a window, driven over its DevTools protocol: tabs, and scripts in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from running import PATIENCE, eventually

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-port=0",
)


def chromium() -> str:
    """The browser to test with; skips the test if there is none."""
    found = os.environ.get("TAILRACE_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium: `scripts/setup browser` installs Debian's, TAILRACE_CHROMIUM names another")
    return found


class Browser:
    """One browser with an empty profile."""

    def __init__(self, directory: Path) -> None:
        profile = directory / "profile"
        command = [chromium(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with (directory / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        port = profile / "DevToolsActivePort"
        eventually(lambda: port.exists() and port.read_text().count("\n") == 1, "Chromium has begun")
        number, path = port.read_text().split("\n")
        self._wire: ClientConnection = connect(f"ws://127.0.0.1:{number}{path}", max_size=None, compression=None)
        self._count = 0
        self._logged: dict[str, list[str]] = {}

    def tab(self, url: str, *, free: bool = False) -> Tab:
        """A tab that has loaded a page. `free`: the test's scripts may do there what the page's policy forbids."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, target, session)
        for domain in ("Network", "Page", "Log"):
            tab.call(f"{domain}.enable")
        tab.call("Page.setBypassCSP", enabled=free)
        tab.open(url)
        return tab

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Ask the browser for something; events are passed over, but for what tabs write to their console."""
        self._count += 1
        request = {"id": self._count, "method": method, "params": params}
        self._wire.send(json.dumps(request if session is None else {**request, "sessionId": session}))
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = json.loads(self._wire.recv(timeout=deadline - time.monotonic()))
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if answer.get("method") == "Log.entryAdded":
                self._logged.setdefault(answer["sessionId"], []).append(answer["params"]["entry"]["text"])

    def logged(self, session: str) -> list[str]:
        """What the browser has said so far in the console of a tab, such as what a policy forbids."""
        return self._logged.get(session, [])

    def close(self) -> None:
        self._wire.close()
        self._process.terminate()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()


class Tab:
    """One page."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session

    def call(self, method: str, **params: Any) -> Any:
        """Ask the tab for something."""
        return self._browser.call(method, self._session, **params)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        eventually(
            lambda: self.run("document.readyState === 'complete' && location.href !== 'about:blank'") is True,
            f"{url} has loaded",
        )

    def run(self, script: str) -> Any:
        """The value of an expression in the page; waits for a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, what: str) -> None:
        """Wait until an expression is true."""
        try:
            eventually(lambda: self.run(script) is True, what, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}; seen: {self.run('JSON.stringify(globalThis.seen)')}") from None

    def logged(self) -> list[str]:
        """What the browser has said in the console so far."""
        self.run("0")
        return self._browser.logged(self._session)

    def online(self, online: bool) -> None:
        """Take the network from the page, or give it back. The page gets the event."""
        self.call(
            "Network.emulateNetworkConditions",
            offline=not online,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
