"""The parts of the pipeline that are Java code of ours in Spark's JVM. Spark has a slower plan in place of each.

The sources are compiled when a session starts, in some tenths of a second, by the compiler that Spark carries for its
own code: no Java development kit is needed, and nothing is built before. A part that does not compile, or whose classes
do not load, is left out with one warning, and so is a part that `--jvm-parts` turns off, without one. The others stay.
`active` says which parts a session has; whoever makes a plan asks it.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped, unused-ignore]
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

JSON = "json"
SINK = "sink"
CONFLATION = "conflation"
SHUFFLE = "shuffle"
FILES = "files"
OVERFLOW = "overflow"

SOURCES = Path(__file__).parent / "java"
# The setting in which a session says which parts it has.
ACTIVE = "spark.tailrace.jvmParts"
# The sink needs Kafka's classes. A session of the user's own, in which views are tested, may lack them.
_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_EXTENSIONS = "spark.sql.extensions"


@dataclass(frozen=True)
class JvmPart:
    """One part: its sources, each of which may use those before it, and the settings by which Spark finds its classes.

    `entries` are the classes that Spark or a plan asks for by name. `cost` says what is lost without the part.
    `local`: the settings are for a session whose tasks run in the JVM of this process.
    """

    sources: Sequence[str]
    entries: Sequence[str]
    cost: str
    settings: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    local: bool = False


PARTS = {
    JSON: JvmPart(
        ("TypedFunction", "PlainTypes", "FlatJson", "Json", "Functions", "JsonFunctions"),
        ("JsonFunctions", "Json"),
        "JSON is read by Spark's from_json and checked by expressions, which takes several times the processor time; a "
        "number that no double holds exactly is null in a field declared as string",
        {"spark.sql.catalog.tailrace": "tailrace.JsonFunctions"},
    ),
    SINK: JvmPart(
        ("PlainTypes", "RowJson", "Newest", "Changelog", "Layout"),
        ("Changelog", "Layout"),
        "micro-batches write by Spark's Kafka sink: a backlog is read more slowly, and of a view of latest values each "
        "change is written, not only the newest of a key",
        needs=_KAFKA,
    ),
    CONFLATION: JvmPart(
        ("TypedFunction", "Functions", "Packed", "PackedFunctions", "Newest", "Conflation"),
        ("PackedFunctions", "Conflation"),
        "Spark sorts outdated rows, too: the backlog of a join or of a view of latest events is read more slowly",
        {"spark.sql.catalog.tailrace_rows": "tailrace.PackedFunctions"},
    ),
    SHUFFLE: JvmPart(
        ("Shuffle",),
        ("Shuffle",),
        "in real time a row of an aggregate, window or join comes half a millisecond later, a whole one at most, and "
        "goes over connections that ask nobody for a secret and encrypt nothing",
        {"spark.shuffle.manager.incremental": "tailrace.Shuffle"},
    ),
    FILES: JvmPart(
        ("LocalFiles",),
        ("LocalFiles",),
        "Hadoop starts a process for each checkpoint file on a local disk: a batch boundary takes longer",
        {"spark.hadoop.fs.file.impl": "tailrace.LocalFiles"},
        local=True,
    ),
    OVERFLOW: JvmPart(
        ("Overflow",),
        ("Overflow",),
        "plans are checked for overflows one by one before they start: a query starts up to some seconds later",
        {_EXTENSIONS: "tailrace.Overflow"},
    ),
}


def chosen(text: str) -> frozenset[str]:
    """The parts that a text names: `all`, `none`, or some of them with commas."""
    if text == "all":
        return frozenset(PARTS)
    return frozenset() if text == "none" else frozenset(name.strip() for name in text.split(","))


def told(names: Collection[str]) -> str:
    """Parts in the words of the setting."""
    return ",".join(name for name in PARTS if name in names) or "none"


def active(session: SparkSession | None = None) -> frozenset[str]:
    """The parts that a session has, by default the one that plans are made in."""
    found = session or SparkSession.active()
    return chosen(found.conf.get(ACTIVE, "none") or "none")


def install(jvm: Any, directory: Path, wanted: Collection[str], sources: Path = SOURCES) -> dict[str, str]:
    """Compile parts into a directory for the class loader, before Spark starts.

    By part, why it can't be used; empty if it can.
    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    fit = [name for name in PARTS if name in wanted and _has(jvm, loader, PARTS[name].needs)]
    compiler = _Compiler(jvm, loader, directory, sources)
    failures = {name: compiler.compile(PARTS[name].sources) for name in fit}
    loader.addURL(jvm.java.net.URL(f"{directory.as_uri()}/"))
    for name in fit:
        failures[name] = failures[name] or _not_loaded(jvm, loader, PARTS[name].entries)
    return failures


def warn(failures: Mapping[str, str], version: str) -> None:
    """Tell once what each part costs that was left out."""
    for name, failure in failures.items():
        if failure:
            log.warning("part %s is left out, because %s on Spark %s: %s", name, failure, version, PARTS[name].cost)


def settings_of(names: Collection[str], *, local: bool) -> dict[str, str]:
    """The settings by which Spark finds the classes of parts."""
    found: dict[str, str] = {}
    for name in names:
        if local or not PARTS[name].local:
            found |= PARTS[name].settings
    return found | {ACTIVE: told(names)}


def note_missing(session: SparkSession, names: Collection[str]) -> None:
    """See that a session which somebody else has started is not taken for one with a rule that it lacks."""
    extensions = session.sparkContext.getConf().get(_EXTENSIONS) or ""
    if OVERFLOW in names and PARTS[OVERFLOW].settings[_EXTENSIONS] not in extensions:
        session.conf.set(ACTIVE, told(frozenset(names) - {OVERFLOW}))


class _Compiler:
    """Compiles each source once; one that fails does not take others along, but for those that need it."""

    def __init__(self, jvm: Any, loader: Any, directory: Path, sources: Path) -> None:
        self._jvm = jvm
        self._loader = loader
        self._directory = directory
        self._sources = sources
        self._failures: dict[str, str] = {}

    def compile(self, sources: Sequence[str]) -> str:
        """Compile the sources that are not yet; why one of them can't be, empty if all can."""
        for source in sources:
            if source not in self._failures:
                try:
                    self._compile(source)
                    self._failures[source] = ""
                except (Py4JError, OSError) as error:
                    self._failures[source] = f"{source}.java does not compile ({_reason(error)})"
            if self._failures[source]:
                return self._failures[source]
        return ""

    def _compile(self, source: str) -> None:
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self._loader)
        compiler.cook(f"{source}.java", (self._sources / f"{source}.java").read_text(encoding="utf-8"))
        self._loader = compiler.getClassLoader()
        for name, code in compiler.getBytecodes().items():
            file = self._directory / f"{name.replace('.', '/')}.class"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(code))


def jar_of(directory: Path) -> Path:
    """The classes of a directory as a jar, for executors in processes of their own."""
    jar = directory / "tailrace.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in directory.rglob("*.class"):
            archive.write(file, file.relative_to(directory))
    return jar


def _not_loaded(jvm: Any, loader: Any, entries: Sequence[str]) -> str:
    for name in entries:
        try:
            jvm.java.lang.Class.forName(f"tailrace.{name}", True, loader)
        except Py4JError as error:
            return f"{name} does not load ({_reason(error)})"
    return ""


def _reason(error: Exception) -> str:
    """What Java says, in one line."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else error
    return (str(cause).splitlines() or [type(error).__name__])[0][:200]


def _has(jvm: Any, loader: Any, name: str) -> bool:
    try:
        return not name or jvm.java.lang.Class.forName(name, False, loader) is not None
    except Py4JJavaError:
        return False
