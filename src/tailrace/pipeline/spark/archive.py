"""An archive of Spark's classes: a JVM that has one is up in two thirds of the time, and so is its first query.

Java can keep classes in a file as it holds them in memory, and map them from there (class data sharing). An archive
fits one Java and one class path: a JVM that has others leaves it alone, and says nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from tailrace.dev.cache import user_cache
from tailrace.errors import InstallError
from tailrace.pipeline.spark.java_options import given_options

# An archive that nobody has used for so long belongs to something that was removed.
_UNUSED_DAYS = 30
# A JVM warns of an archive that does not fit; it starts without, and nobody has to know.
_SILENT = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_CHOSEN = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")


def archive_options(jars: Sequence[Path], environment: Mapping[str, str]) -> list[str]:
    """The options by which Spark's JVM takes the archive; none if there is none, or the user has named another."""
    given, file = given_options(environment), archive_file(jars, environment)
    if any(option in given for option in _CHOSEN) or not file.is_file():
        return []
    with suppress(OSError):
        os.utime(file)
    return [f'"-XX:SharedArchiveFile={file}"', *_SILENT]


def training_options(file: Path) -> list[str]:
    """The options by which Spark's JVM writes an archive of what it has loaded, when it ends."""
    return [f'"-XX:ArchiveClassesAtExit={file}"']


def archive_file(jars: Sequence[Path], environment: Mapping[str, str]) -> Path:
    """Where the archive for this Java, this Spark and these jars is kept, whether it exists or not."""
    named = environment.get("JAVA_HOME")
    java = Path(named, "bin", "java") if named else Path(shutil.which("java") or "java")
    modules = java.resolve().parent.parent / "lib" / "modules"
    parts = "\n".join(_identity(file) for file in (modules, *jars, *_spark_jars()))
    return archives(environment) / f"{hashlib.sha256(parts.encode()).hexdigest()[:24]}.jsa"


def _spark_jars() -> list[Path]:
    return sorted(Path(_find_spark_home(), "jars").glob("*.jar"))


def _identity(file: Path) -> str:
    """What a JVM compares, too, before it takes an archive."""
    try:
        found = file.stat()
    except OSError:
        return str(file)
    return f"{file} {found.st_size} {found.st_mtime_ns}"


def archives(environment: Mapping[str, str]) -> Path:
    """The directory of all archives, in the user's cache."""
    return user_cache("classes", environment)


def make_archive(jars: Sequence[Path]) -> Path:
    """Let Spark do once what a pipeline does, and archive its classes, unless that is done already.

    Takes a minute. Raises InstallError if it fails.
    """
    file = archive_file(jars, os.environ)
    if file.is_file():
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _remove_unused(file.parent)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=file.parent) as directory:
            made = Path(directory, "classes.jsa")
            command = [sys.executable, "-m", "tailrace.pipeline.spark.training", str(made), *map(str, jars)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0 or not made.is_file():
                said = (done.stderr.strip() or done.stdout.strip() or "nothing was said").splitlines()[-1]
                expected = "expected Java to write an archive of Spark's classes"
                raise InstallError(f"{expected}, got: {said}; pipelines start without it, too")
            made.replace(file)
    except OSError as error:
        raise InstallError(f"can't write {file}: {error.strerror}; name another cache with XDG_CACHE_HOME") from None
    return file


def _remove_unused(directory: Path) -> None:
    for file in directory.glob("*.jsa"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > _UNUSED_DAYS * 86_400:
                file.unlink()
