"""Classes of our own in Spark's JVM, for what Spark's can't do or do slowly; each file says what it does.

They are compiled at the start of a session, in some tenths of a second, by the compiler that Spark carries for its own
code: no Java development kit is needed, and nothing that is built before.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped, unused-ignore]

# Each may use those before it.
_FUNCTIONS = ("TypedFunction.java", "PlainTypes.java", "FlatJson.java", "Json.java", "Packed.java", "Functions.java")
_ANALYSIS = ("Overflow.java",)
_BATCHES = ("Newest.java", "Conflation.java")
_SINK = ("RowJson.java", "Changelog.java", "Layout.java")
_CORE = ("Shuffle.java", "LocalFiles.java")
# The sink needs Kafka's classes. A session of the user's own, in which views are tested, may lack them.
_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def install(jvm: Any, directory: Path) -> None:
    """Compile the classes into a directory for the class loader, before Spark starts."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    known = loader
    for source in (*_FUNCTIONS, *_ANALYSIS, *_BATCHES, *_CORE, *(_SINK if _has(jvm, loader, _KAFKA) else ())):
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(known)
        compiler.cook(source, (Path(__file__).parent / "java" / source).read_text(encoding="utf-8"))
        known = compiler.getClassLoader()
        for name, code in compiler.getBytecodes().items():
            file = directory / f"{name.replace('.', '/')}.class"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(code))
    loader.addURL(jvm.java.net.URL(f"{directory.as_uri()}/"))


def jar_of(directory: Path) -> Path:
    """The classes of a directory as a jar, for executors in processes of their own."""
    jar = directory / "tailrace.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in directory.rglob("*.class"):
            archive.write(file, file.relative_to(directory))
    return jar


def _has(jvm: Any, loader: Any, name: str) -> bool:
    try:
        jvm.java.lang.Class.forName(name, False, loader)
    except Py4JJavaError:
        return False
    return True
