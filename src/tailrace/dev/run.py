"""`tailrace dev`: a whole app on this machine, from the broker to the gateway.

1. Before anything starts, it checks for mistakes in the app, a taken port, and a data directory in use.
2. It installs Java and the jars if they are missing.
3. Kafka and Redis start and answer. With `--secure` they and the gateway are locked, and each process gets a user of
   its own, with the rights that it needs. Then the pipeline, the materializer and the gateway start together.
4. When these are ready, the commands given with `--also` start.
5. It prints the URLs when the first row is in the store.
6. It stays until Ctrl-C, SIGTERM or SIGHUP, or until a part dies. Then it stops the parts in the reverse order of
   their start. A second Ctrl-C kills them. If this process itself is killed, its parts are killed, too.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

from tailrace.declarations.app import App
from tailrace.declarations.checks import find_mistakes
from tailrace.declarations.loading import load_app
from tailrace.dev.broker import Broker
from tailrace.dev.data import Data, opened
from tailrace.dev.jars import ensure
from tailrace.dev.java import ensure_java, java_home
from tailrace.dev.locks import PRODUCER, Locks
from tailrace.dev.parts import GRACE, Part
from tailrace.dev.ports import LOOPBACK, free_port, refusal
from tailrace.dev.probe import http_answers
from tailrace.dev.redis_server import RedisServer
from tailrace.dev.screen import Screen
from tailrace.dev.welcome import Welcome
from tailrace.errors import DeclarationError, PartDied, SettingError
from tailrace.gateway.connection.certificate import read_certificate
from tailrace.settings import TABLE, Settings
from tailrace.store.layout.keys import default_prefix

SLOW = 60.0
# A part that is not ready yet has nothing to put in order; Spark can't be interrupted while it starts.
UNREADY_GRACE = 1.0
_INTERVAL = 0.1
# Variables that say where Kafka and Redis are and how to log in, and where metrics are: the parts have others. With
# `--secure` also those of tokens.
_REPLACED = ("TAILRACE_KAFKA", "TAILRACE_REDIS", "TAILRACE_ADMIN")
_REPLACED_BY_LOCKS = ("TAILRACE_JWT", "TAILRACE_JWKS", "TAILRACE_ACCESS")


def run(
    reference: str,
    settings: Settings,
    *,
    fresh: bool = False,
    also: Sequence[str] = (),
    umask_also: int = -1,
    secure: bool = False,
) -> int:
    """Run the app until it is stopped (0) or a part dies (1). Call this from the main thread.

    umask_also: the umask of the commands in `also`, by default that of this process.
    """
    app = load_app(reference)
    if mistakes := find_mistakes(app):
        raise DeclarationError(mistakes)
    host, port = settings.text("host"), settings.number("port")
    if port and (reason := refusal(host, port)) is not None:
        raise SettingError(f"--port {port} on {host}: {reason}: stop what uses it, or choose another with --port")
    commands = [_split(command) for command in also]
    read_certificate(settings.text("tls-cert"), settings.text("tls-key"))
    if secure and settings.text("access") == "off":
        raise SettingError("--access: expected jwt, or nothing, with --secure, got off: leave one of the two out")
    with opened(Path(settings.text("data")).absolute()) as data:
        if fresh:
            data.empty()
        data.turn_logs()
        made = _Run(reference, app, settings, data, port or free_port(), commands, umask_also=umask_also, secure=secure)
        return made.until_stopped()


class _Run:
    """One run, and the parts it has started so far."""

    def __init__(
        self,
        reference: str,
        app: App,
        settings: Settings,
        data: Data,
        port: int,
        also: list[list[str]],
        *,
        umask_also: int,
        secure: bool,
    ) -> None:
        self._reference = reference
        self._app = app
        self._settings = settings
        self._data = data
        self._port = port
        self._also = also
        self._umask_also = umask_also
        self._screen = Screen()
        self._parts: list[Part] = []
        self._waiting: dict[Part, tuple[str, str]] = {}
        # `python` in a command of the user means the Python that runs this.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        replaced = (*_REPLACED, *(_REPLACED_BY_LOCKS if secure else ()))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(replaced)}
        self._environment = {**inherited, "PATH": path, "PYTHONUNBUFFERED": "1"}
        self._prefix = settings.text("prefix") or default_prefix(app.name)
        self._locks: Locks | None = None
        if secure:
            self._locks = Locks(data.locks, app, prefix=self._prefix, hosts=_named(settings.text("host")))

    def until_stopped(self) -> int:
        """Start, stay, and stop everything, whatever happens."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        try:
            try:
                self._start()
                self._stay()
            finally:
                self._stop()
        except KeyboardInterrupt:
            self._screen.say("stopped; the next start continues with the same data")
            return 0
        except PartDied as error:
            self._screen.failed(str(error))
            return 1
        return 0

    def _start(self) -> None:
        self._install()
        with self._screen.busy("starting Kafka and Redis"):
            redis = self._start_services()
        with self._screen.busy("starting Spark, the materializer and the gateway"):
            self._start_processes()
        for number, command in enumerate(self._also, 1):
            part = Part(
                shlex.join(command),
                command,
                self._data.log(f"also-{number}"),
                environment=self._environment | self._connection(PRODUCER),
                may_finish=True,
                umask=self._umask_also,
            )
            self._parts.append(part)
            self._screen.ready("also", part.name)
        locks, own = self._locks, bool(self._settings.text("tls-cert"))
        self._welcome = Welcome(
            self._app,
            redis.url if locks is None else locks.admin_url(redis),
            self._prefix,
            self._url,
            self._data,
            self._screen,
            locks,
            locks.authority if locks is not None and not own else None,
        )

    def _install(self) -> None:
        java = ensure_java(self._screen.say)
        if (home := java_home(java)) is not None:
            self._environment["JAVA_HOME"] = str(home)
        self._screen.ready("java", str(java))
        directory = Path(given) if (given := self._settings.text("jars")) else None
        jars = [*ensure("broker", directory), *ensure("spark", directory)]
        self._screen.ready("jars", f"{len(jars)} in {jars[0].parent}")
        if self._locks is not None:
            self._screen.ready("locks", f"{self._locks.directory}: certificates, passwords, the secret of tokens")

    def _start_services(self) -> RedisServer:
        directory = Path(given) if (given := self._settings.text("jars")) else None
        locks = self._locks
        begun = time.monotonic()
        broker = Broker(
            self._data.kafka,
            port=free_port(9092),
            log=self._data.log("kafka"),
            jars=directory,
            locks=locks.broker if locks is not None else None,
        )
        broker.start()
        self._parts.append(broker.part)
        self._screen.ready("kafka", broker.address + (", TLS, passwords and ACLs" if locks else ""), begun)
        begun = time.monotonic()
        redis = RedisServer(
            self._data.redis,
            port=free_port(6379),
            log=self._data.log("redis"),
            locks=locks.redis if locks is not None else None,
        )
        redis.start()
        self._parts.append(redis.part)
        self._screen.ready("redis", f"{LOOPBACK}:{redis.port}{_locked(redis) if locks else ''}", begun)
        self._environment |= {"TAILRACE_KAFKA": broker.address}
        if locks is not None:
            locks.let_in(broker, redis)
        else:
            self._environment |= {"TAILRACE_REDIS": redis.url}
        return redis

    def _connection(self, user: str) -> dict[str, str]:
        """What a process needs besides to connect as its user."""
        return self._locks.variables(user) if self._locks is not None else {}

    def _start_processes(self) -> None:
        begun = time.monotonic()
        waiting = self._waiting

        def begin(name: str, argument: str, health_port: int, detail: str, *flags: str) -> None:
            command = [sys.executable, "-m", "tailrace", name, argument, *flags]
            environment = self._environment | self._connection(name) | self._passed_on(name)
            part = Part(name, command, self._data.log(name), environment=environment)
            self._parts.append(part)
            base = self._url if name == "gateway" else f"http://{LOOPBACK}:{health_port}"
            waiting[part] = (f"{base}/health/ready", detail)

        health = free_port()
        own = ("--checkpoints", str(self._data.checkpoints), "--create-topics", "all")
        begin("pipeline", self._reference, health, "", *own, "--health-port", str(health))
        health = free_port()
        begin("materializer", self._app.name, health, "", "--health-port", str(health))
        begin("gateway", self._app.name, self._port, self._url, "--port", str(self._port))
        slow = begun + SLOW
        while waiting:
            self._check()
            for part, (url, detail) in list(waiting.items()):
                if http_answers(url, self._certificate):
                    del waiting[part]
                    self._screen.ready(part.name, detail, begun)
            if time.monotonic() > slow:
                slow = float("inf")
                for part in waiting:
                    self._screen.say(f"  {part.name} is not ready after {SLOW:.0f} s; its log: {part.log}")
            time.sleep(_INTERVAL)

    def _stay(self) -> None:
        with self._welcome:
            while True:
                self._check()
                self._welcome.look()
                time.sleep(_INTERVAL)

    def _check(self) -> None:
        for part in self._parts:
            part.check()

    def _stop(self) -> None:
        def hurry(_signal: int, _frame: FrameType | None) -> None:
            for part in self._parts:
                part.signal_kill()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, hurry)
        with self._screen.busy("stopping"):
            for part in reversed(self._parts):
                part.stop(UNREADY_GRACE if part in self._waiting else GRACE)

    def _passed_on(self, command: str) -> dict[str, str]:
        """The settings of `dev` that the command takes as well, as variables: one may hold a password.

        Files with secrets are named by the environment already.
        """
        shared = [s for s in TABLE if "dev" in s.commands and command in s.commands and s.name != "port"]
        values = {s.variable: self._settings.text(s.name) for s in shared if s.name not in self._settings.secret_files}
        return {variable: value for variable, value in values.items() if value}

    @property
    def _certificate(self) -> str:
        """The file with the certificate that the gateway shows; empty if it shows none."""
        own = str(self._locks.gateway_certificate[0]) if self._locks is not None else ""
        return self._settings.text("tls-cert") or own

    @property
    def _url(self) -> str:
        scheme = "https" if self._certificate else "http"
        return f"{scheme}://{_reachable(self._settings.text('host'))}:{self._port}"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SettingError(f"--also {command!r}: {error}") from None
    if not words:
        raise SettingError("--also: expected a command, got nothing")
    return words


def _locked(redis: RedisServer) -> str:
    return ", TLS and passwords" if redis.encrypted else ", passwords; no TLS, without which this server was built"


def _named(host: str) -> tuple[str, ...]:
    """The name or address that the gateway's certificate has to be for, if it listens on just one."""
    reachable = _reachable(host).strip("[]")
    return () if reachable == LOOPBACK else (reachable,)


def _reachable(host: str) -> str:
    """A host to connect to, for one to listen on."""
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            return LOOPBACK
    return f"[{host}]" if ":" in host else host
