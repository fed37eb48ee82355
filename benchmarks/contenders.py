"""Contenders: the same view by Tailrace, by Spark alone and by Kafka Streams, each as a process on the same broker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.dev import jars
from tailrace.dev.java import ensure_java
from tailrace.dev.parts import Part
from tailrace.errors import InstallError

PEERS = Path(__file__).parent / "peers"
PARTITIONS = 2
# As much as Spark gives its driver where nothing else is said.
_STREAMS_MEMORY = "-Xmx1g"
_JDK = "openjdk-17-jdk-headless"

# How a contender treats a backlog. The product's own way is to catch up in micro-batches and then go live.
REAL_TIME, MICRO_BATCH, CATCH_UP = "real-time", "micro-batch", "catch-up"


@dataclass(frozen=True)
class Assignment:
    """What a contender is to do: read `prefix` + the kind's topics from the earliest on, write `output`."""

    kind: str
    mode: str
    kafka: str
    prefix: str
    output: str
    place: Path
    interval_seconds: float
    rehearsal: bool = True

    @property
    def checkpoints(self) -> Path:
        """Where Spark, or Kafka Streams, keeps its state."""
        return self.place / "state"

    @property
    def log(self) -> Path:
        """What the contender says."""
        return self.place / "log"


class Running:
    """A contender at work."""

    def __init__(self, part: Part, assignment: Assignment, started: Callable[[], float | None]) -> None:
        self.part = part
        self._assignment = assignment
        self._started = started

    def started(self) -> float | None:
        """When it began to process: its JVM runs, its query or topology has been started, nothing has been read."""
        return self._started()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stop all its processes where they are, and let them go on afterwards."""
        os.killpg(self.part.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.part.pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """Processor time of all its processes so far; tells contenders apart also where the machine is shared."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                # After the name: state, parent, group; user and system time are the twelfth and thirteenth.
                fields = stat.read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12]) if int(fields[2]) == self.part.pid else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def boundaries(self, since: float, until: float) -> int | None:
        """How many batches of Spark ended in a time; None where there are no batches."""
        folders = [path for path in self._assignment.checkpoints.rglob("commits") if ".scratch" not in path.parts]
        if not folders:
            return None
        files = [file for folder in folders for file in folder.iterdir() if file.name.isdigit()]
        return sum(since <= file.stat().st_mtime <= until for file in files)


def start_tailrace(assignment: Assignment) -> Running:
    """`tailrace pipeline`; real-time mode alone, where it is asked for, by a small change at its start."""
    assignment.place.mkdir(parents=True, exist_ok=True)
    real_time = assignment.mode == REAL_TIME
    program = [str(PEERS / "real_time_only.py")] if real_time else ["-m", "tailrace"]
    interval = f"{assignment.interval_seconds:g}s"
    own = ["--checkpoints", str(assignment.checkpoints), "--partitions", str(PARTITIONS), "--batch-interval", interval]
    command = [sys.executable, *program, "pipeline", "tailrace_views:app", "--kafka", assignment.kafka, *own]
    environment = {
        **os.environ,
        "BENCH_APP": f"bench-{assignment.output}",
        "BENCH_KIND": assignment.kind,
        "BENCH_PREFIX": assignment.prefix,
        "BENCH_OUTPUT": assignment.output,
        "BENCH_MODE": MICRO_BATCH if assignment.mode == MICRO_BATCH else "",
        "BENCH_REHEARSAL": "yes" if assignment.rehearsal else "no",
    }
    part = Part("tailrace", command, assignment.log, environment=environment, cwd=PEERS)
    return Running(part, assignment, lambda: _first_checkpoint(assignment))


def start_spark(assignment: Assignment) -> Running:
    """Spark alone, by a script written by hand."""
    assignment.place.mkdir(parents=True, exist_ok=True)
    flags = {
        "--kafka": assignment.kafka,
        "--prefix": assignment.prefix,
        "--output": assignment.output,
        "--checkpoint": str(assignment.checkpoints / "view"),
        "--mode": assignment.mode,
        "--interval": f"{round(assignment.interval_seconds * 1000)} milliseconds",
        "--jars": os.pathsep.join(map(str, jars.ensure("spark"))),
    }
    command = [sys.executable, str(PEERS / "plain_spark.py"), assignment.kind]
    command += [word for flag in flags.items() for word in flag]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(assignment.place / "scratch")}
    part = Part("spark", command, assignment.log, environment=environment)
    return Running(part, assignment, lambda: _first_checkpoint(assignment))


def start_streams(assignment: Assignment, classes: Path, *, cached: bool) -> Running:
    """Kafka Streams with or without its record cache."""
    assignment.place.mkdir(parents=True, exist_ok=True)
    variant = "cached" if cached else "every-update"
    # A record that does not wait is seen at once, but batches of one cost more: on a backlog records wait.
    linger = 100 if cached else 0 if assignment.mode == REAL_TIME else 5
    words = [assignment.kind, assignment.kafka, assignment.prefix, assignment.output, str(assignment.checkpoints)]
    path = os.pathsep.join([str(classes), *map(str, jars.ensure("streams"))])
    quiet = f"-Dlog4j2.configurationFile={PEERS / 'log4j2.properties'}"
    command = [str(ensure_java()), _STREAMS_MEMORY, quiet, "-cp", path, "Streams", *words, variant, str(linger)]
    part = Part("streams", command, assignment.log)
    return Running(part, assignment, lambda: _said_started(assignment.log))


def compile_streams(directory: Path) -> Path:
    """Compile the topologies of Kafka Streams; raises InstallError where there is no compiler."""
    beside = ensure_java().resolve().with_name("javac")
    javac = str(beside) if beside.exists() else shutil.which("javac")
    if javac is None:
        raise InstallError(
            f"expected javac beside java or on the PATH, to compile {PEERS / 'Streams.java'}: install the package "
            f"{_JDK}, or leave Kafka Streams out with --contenders tailrace,spark"
        )
    path = os.pathsep.join(map(str, jars.ensure("streams")))
    command = [javac, "-nowarn", "-cp", path, "-d", str(directory), str(PEERS / "Streams.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InstallError(f"javac failed:\n{done.stderr}")
    return directory


def _first_checkpoint(assignment: Assignment) -> float | None:
    """Spark writes the metadata of a checkpoint when it starts a query, before it plans the first batch."""
    found = [path for path in assignment.checkpoints.rglob("metadata") if ".scratch" not in path.parts]
    return min((path.stat().st_mtime for path in found if path.is_file()), default=None)


def _said_started(log: Path) -> float | None:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("started "):
            return int(line.split()[1]) / 1000
    return None
