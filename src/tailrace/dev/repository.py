"""Where jars come from: the same repository that Spark's own `--packages` would ask."""

from __future__ import annotations

import os
import re
import zipfile
from importlib.util import find_spec
from pathlib import Path

from tailrace.errors import InstallError

VARIABLE = "DEFAULT_ARTIFACT_REPOSITORY"
_RESOLVER = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
_ROOT = re.compile(rb"https://[A-Za-z0-9./_-]+/maven2/")


def root() -> str:
    """The address of the repository, with a slash at its end.

    The environment variable says it, as for Spark; by default it is that of the resolver inside the installed PySpark.
    So if a machine's Spark uses a mirror, it needs no second setting.
    """
    if given := os.environ.get(VARIABLE):
        return given.rstrip("/") + "/"
    spec = find_spec("pyspark")
    for home in (spec.submodule_search_locations or ()) if spec is not None else ():
        for jar in sorted(Path(home, "jars").glob("ivy-*.jar")):
            with zipfile.ZipFile(jar) as archive:
                if (found := _ROOT.search(archive.read(_RESOLVER))) is not None:
                    return found[0].decode()
    raise InstallError(
        f"no address to download jars from: expected {VARIABLE} in the environment, or PySpark and its resolver "
        "among the installed packages; install tailrace[dev], or set the variable to a Maven repository"
    )
