"""`tailrace dev`: a whole app on this machine, from the broker to the gateway.

1. Before anything starts, it checks for mistakes in the app, a taken port, and a data directory in use.
2. It installs Java and the jars if they are missing.
3. Kafka and Redis start and answer. Then the pipeline, the materializer and the gateway start together.
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


def run(
    reference: str, settings: Settings, *, fresh: bool = False, also: Sequence[str] = (), umask_also: int = -1
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
    with opened(Path(settings.text("data")).absolute()) as data:
        if fresh:
            data.empty()
        data.turn_logs()
        return _Run(reference, app, settings, data, port or free_port(), commands, umask_also).until_stopped()


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
        umask_also: int,
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
        self._environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}

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
            broker, redis = self._start_services()
        with self._screen.busy("starting Spark, the materializer and the gateway"):
            self._start_processes(broker, redis)
        for number, command in enumerate(self._also, 1):
            part = Part(
                shlex.join(command),
                command,
                self._data.log(f"also-{number}"),
                environment=self._environment,
                may_finish=True,
                umask=self._umask_also,
            )
            self._parts.append(part)
            self._screen.ready("also", part.name)
        prefix = self._settings.text("prefix") or default_prefix(self._app.name)
        self._welcome = Welcome(self._app, redis.url, prefix, self._url, self._data, self._screen)

    def _install(self) -> None:
        java = ensure_java(self._screen.say)
        if (home := java_home(java)) is not None:
            self._environment["JAVA_HOME"] = str(home)
        self._screen.ready("java", str(java))
        directory = Path(given) if (given := self._settings.text("jars")) else None
        jars = [*ensure("broker", directory), *ensure("spark", directory)]
        self._screen.ready("jars", f"{len(jars)} in {jars[0].parent}")

    def _start_services(self) -> tuple[Broker, RedisServer]:
        directory = Path(given) if (given := self._settings.text("jars")) else None
        begun = time.monotonic()
        broker = Broker(self._data.kafka, port=free_port(9092), log=self._data.log("kafka"), jars=directory)
        broker.start()
        self._parts.append(broker.part)
        self._screen.ready("kafka", broker.address, begun)
        begun = time.monotonic()
        redis = RedisServer(self._data.redis, port=free_port(6379), log=self._data.log("redis"))
        redis.start()
        self._parts.append(redis.part)
        self._screen.ready("redis", f"{LOOPBACK}:{redis.port}", begun)
        self._environment["TAILRACE_KAFKA"] = broker.address
        self._environment["TAILRACE_REDIS"] = redis.url
        return broker, redis

    def _start_processes(self, broker: Broker, redis: RedisServer) -> None:
        begun = time.monotonic()
        waiting = self._waiting

        def begin(name: str, argument: str, health_port: int, detail: str, *flags: str) -> None:
            command = [sys.executable, "-m", "tailrace", name, argument, *flags]
            part = Part(name, command, self._data.log(name), environment=self._environment | self._passed_on(name))
            self._parts.append(part)
            base = self._url if name == "gateway" else f"http://{LOOPBACK}:{health_port}"
            waiting[part] = (f"{base}/health/ready", detail)

        kafka, store = ("--kafka", broker.address), ("--redis", redis.url)
        health = free_port()
        own = ("--checkpoints", str(self._data.checkpoints), "--create-topics", "all")
        begin("pipeline", self._reference, health, "", *kafka, *own, "--health-port", str(health))
        health = free_port()
        begin("materializer", self._app.name, health, "", *kafka, *store, "--health-port", str(health))
        begin("gateway", self._app.name, self._port, self._url, *kafka, *store, "--port", str(self._port))
        slow = begun + SLOW
        while waiting:
            self._check()
            for part, (url, detail) in list(waiting.items()):
                if http_answers(url, self._settings.text("tls-cert")):
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
    def _url(self) -> str:
        scheme = "https" if self._settings.text("tls-cert") else "http"
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


def _reachable(host: str) -> str:
    """A host to connect to, for one to listen on."""
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            return LOOPBACK
    return f"[{host}]" if ":" in host else host
