"""Functions of our own in Spark's JVM, for what Spark's can't do or do slowly. `Json.java` says what is there.

They are compiled at the start of a session, in some tenths of a second, by the compiler that Spark carries for its own
code: no Java development kit is needed, and nothing that is built before.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

_SOURCE = Path(__file__).with_name("Json.java")
# Where Spark finds the functions: `tailrace.json` is one of the catalog `tailrace`.
_FUNCTIONS = "tailrace.Json$Functions"
CATALOG = {"spark.sql.catalog.tailrace": _FUNCTIONS}


def install(session: SparkSession, classes: Path, *, executors: bool) -> None:
    """Compile the functions into a directory for the class loader; executors elsewhere get them as a jar."""
    context = session.sparkContext
    jvm = context._jvm
    assert jvm is not None  # noqa: S101
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    compiled = {f"{name.replace('.', '/')}.class": bytes(code) for name, code in compiler.getBytecodes().items()}
    for name, code in compiled.items():
        file = classes / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    loader.addURL(jvm.java.net.URL(f"{classes.as_uri()}/"))
    if executors:
        jar = classes / "tailrace.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for name, code in compiled.items():
                archive.writestr(name, code)
        context._jsc.addJar(str(jar))


def json(data: Column, schema: StructType, *, lenient: bool = False) -> Column:
    """The fields of one JSON object; null where the data is anything else, or a field has another type.

    lenient: NaN and infinity are numbers, as Spark itself writes them.
    """
    return F.call_function(f"tailrace.{'lenient_' if lenient else ''}json", data, F.lit(None).cast(schema))
