"""The Spark session, with every setting that real-time mode needs and the reason for it."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tailrace.errors import InstallError, SparkDied, TooFewSlots
from tailrace.pipeline.spark import cluster
from tailrace.pipeline.spark.archive import archive_options, training_options
from tailrace.pipeline.spark.jvm_parts import PARTS, SOURCES, install, jar_of, note_missing, settings_of, warn
from tailrace.pipeline.spark.memory import Memory, collector, heap_is_chosen

_LOGGING = Path(__file__).with_name("log4j2.properties")
_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# A length in a damaged Avro value makes the decoder allocate so many bytes or items before it reads on.
_LONGEST = 16 * 1024 * 1024
# What Spark ends a JVM with that has no memory left.
_OUT_OF_MEMORY = 52

SETTINGS = {
    # Real-time mode runs on RocksDB state and checkpoint format 2 only.
    "spark.sql.streaming.stateStore.providerClass": _STATE,
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # Counting the rows of the state reads each key once more before it is written.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Without it, buffers and caches grow with each view, partition and key. All views share it; see `memory.py`.
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    # The shuffle hands rows on after a millisecond instead of 50; the part `shuffle` does not wait for a row alone.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    # The default forks a process for each checkpoint file on a local disk, which lengthens every batch boundary.
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    # Hadoop has a umask of its own, and sets the mode of each file: rows in checkpoints are for nobody else.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    # Rehearsals run batches shorter than the five seconds that are the least otherwise.
    "spark.sql.streaming.realTimeMode.minBatchDuration": "100ms",
    # A consumer per partition of every query stays open; an app of many views would open and close them in turn.
    "spark.kafka.consumer.cache.capacity": "1024",
    # A producer whose password or certificate has been replaced goes on trying until it is dropped.
    "spark.kafka.producer.cache.timeout": "1m",
    # A bad value in one record gives null instead of an error that ends the query. So does an overflow of whole
    # numbers, which would be a wrong number otherwise: see the part `overflow`.
    "spark.sql.ansi.enabled": "false",
    # As in JSON, of two entries with one name the last wins; the default ends the query.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Column names are compared as JSON, Redis and clients compare them.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # Real-time mode has no adaptive plans; turned off here, Spark does not warn of it.
    "spark.sql.adaptive.enabled": "false",
    # The page has no login, and shows plans and settings; see `ui_port`. It kills jobs for everyone who can reach it.
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOCAL = {
    # Where everything runs in one process, nothing of it is reachable from outside. Other users of the machine would
    # need the secret, which Spark makes itself.
    **cluster.LOCAL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # What a micro-batch sorts lies beside the heap, where the garbage collector does not copy it.
    "spark.memory.offHeap.enabled": "true",
}

# How long executors of a cluster may take to register.
_PATIENCE = 60.0
_USUAL = Memory()


def start_session(
    app: str,
    *,
    slots: int,
    state_partitions: int,
    jars: Sequence[Path],
    scratch: Path | None = None,
    quiet: bool = False,
    master: str = "",
    protection: Mapping[str, str] | None = None,
    ui_port: int | None = None,
    archive: Path | None = None,
    memory: Memory = _USUAL,
    parts: Collection[str] = tuple(PARTS),
    sources: Path = SOURCES,
) -> SparkSession:
    """Start Spark with `slots` task slots, in a JVM of this process or on a cluster.

    Raises InstallError if it can't be, and TooFewSlots if the cluster does not have as many.

    master: the URL of a cluster; everything runs in the JVM of this process if it is empty.
    protection: the settings of a cluster's connections, as `cluster.protection` finds them.
    ui_port: where Spark's page is, on loopback; there is none by default.
    scratch: a directory for what Spark needs while it runs, and only then.
    quiet: what the JVM prints is shown only if it does not start.
    archive: a file that the JVM writes its classes to when it ends.
    memory: of the JVM of this process, where everything runs in it; a heap that the user has chosen stays.
    parts: the parts that are Java of ours; those that fail are left out. `sources` is the directory of their sources.
    """
    local = cluster.in_process(master)
    if local:
        # Not what the user may have set: Spark's page listens there.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark logs each mistake in a user's SQL with a stack trace; the analysis reports it in a line.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    conf = SparkConf(loadDefaults=False).setMaster(master or f"local[{slots}]").setAppName(f"tailrace {app}")
    conf.setAll([*SETTINGS.items(), *(_LOCAL if local else {}).items()])
    if ui_port is not None:
        conf.setAll([("spark.ui.enabled", "true"), ("spark.ui.port", str(ui_port))])
    conf.set("spark.sql.shuffle.partitions", str(state_partitions))
    java = [f"-Dorg.apache.avro.limits.{what}.maxLength={_LONGEST}" for what in ("string", "bytes", "collectionItems")]
    java += [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", *collector(os.environ)]
    java += training_options(archive) if archive is not None else archive_options(jars, os.environ)
    classes = _directory_for_classes(scratch)
    if local:
        conf.set("spark.memory.offHeap.size", f"{memory.sorting}m")
        conf.set("spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB", str(memory.state))
        if not heap_is_chosen(os.environ):
            conf.set("spark.driver.memory", f"{memory.heap}m")
    if scratch is not None:
        os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
        java.append(f'"-Djava.io.tmpdir={scratch}"')
    conf.set("spark.driver.extraJavaOptions", " ".join(java))
    # An archive of classes needs the same path each time; so ours are not on it, and come by the class loader.
    conf.set("spark.driver.extraClassPath", os.pathsep.join(map(str, jars)))
    try:
        with _kept_off_terminal() if quiet else nullcontext():
            # First the JVM, then our classes, then Spark: some of them are to be there when it starts.
            SparkContext._ensure_initialized(conf=conf)
            failures = install(SparkContext._jvm, classes, parts, sources)
            usable = [name for name, failure in failures.items() if not failure]
            conf.setAll(list(settings_of(usable, local=local).items()))
            if not local:
                conf.set("spark.jars", ",".join(map(str, (*jars, jar_of(classes)))))
                # Only now: what the JVM is started with can be seen by every user of the machine.
                conf.setAll(list((protection or {}).items()))
                cluster.knock(SparkContext._jvm, dict(conf.getAll()), master)
            session = SparkSession.Builder().config(conf=conf).getOrCreate()
            note_missing(session, usable)
    except PySparkRuntimeError as error:
        raise InstallError(f"Spark did not start: {error}") from None
    except Py4JJavaError as error:
        raise InstallError(f"Spark did not start: {error.java_exception.getMessage()}") from None
    warn(failures, session.version)
    if master:
        _require_slots(session, slots, master)
    return session


def _directory_for_classes(scratch: Path | None) -> Path:
    """A directory for classes that lasts as long as the session."""
    if scratch is None:
        classes = Path(tempfile.mkdtemp(prefix="tailrace-classes-"))
        atexit.register(shutil.rmtree, classes, ignore_errors=True)
    else:
        classes = scratch / "classes"
        classes.mkdir(exist_ok=True)
    return classes


def _require_slots(session: SparkSession, slots: int, master: str) -> None:
    """Wait until a cluster has enough cores: a real-time query that gets only some of its tasks waits for ever."""
    deadline = time.monotonic() + _PATIENCE
    while (found := session.sparkContext.defaultParallelism) < slots:
        if time.monotonic() > deadline:
            session.stop()
            raise TooFewSlots(too_few_slots(slots, found, master))
        time.sleep(0.2)


def too_few_slots(needed: int, found: int, master: str) -> str:
    """The error if the queries of an app need more task slots than there are."""
    remedy = (
        'give the cluster more cores, set fewer --state-partitions, or declare views with mode="micro-batch"; '
        "`tailrace check` says what each needs"
    )
    return (
        f"expected {needed} task slots on {master or 'this machine'}, because real-time mode keeps a task running per "
        f"source and state partition of every view, got {found}: "
        + (remedy if master else "start the pipeline again: it takes as many as its topics have partitions")
    )


def ended(pid: int, code: int) -> str:
    """The error if the JVM has ended by itself."""
    if code == _OUT_OF_MEMORY:
        return (
            f"Spark's JVM, process {pid}, ended because its memory was full: give it more, such as "
            "SPARK_DRIVER_MEMORY=4g, then start the pipeline again: it goes on from its checkpoint"
        )
    return (
        f"Spark's JVM, process {pid}, ended with code {code}: expected it to run as long as the pipeline. "
        "Start the pipeline again: it goes on from its checkpoint"
    )


class Jvm:
    """The JVM of a session: its process id, whether it runs, and what to do when it does not."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._process = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        self.pid = int(self._process.pid)

    @property
    def heap(self) -> int:
        """How many megabytes its heap may have."""
        return int(self._session._jvm.java.lang.Runtime.getRuntime().maxMemory()) // (1024 * 1024)  # type: ignore[union-attr]

    def check(self) -> None:
        """Raise SparkDied if the JVM has ended."""
        code = self._process.poll()
        if code is not None:
            raise SparkDied(ended(self.pid, code))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Calls into the JVM; if they fail because it has ended, SparkDied says so."""
        try:
            yield
        except (Py4JError, OSError):
            # The call fails a moment before the end of the process can be seen.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
            self.check()
            raise

    def stop(self) -> None:
        """Stop the session, unless there is nothing left to stop."""
        if self._process.poll() is None:
            self._session.stop()


@contextmanager
def _kept_off_terminal() -> Iterator[None]:
    """Give the JVM that is started meanwhile a standard error of its own, shown if its start fails."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            yield
        except BaseException:
            printed.seek(0)
            os.write(terminal, printed.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
