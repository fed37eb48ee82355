"""The jar lock: which jars Tailrace runs, and the SHA-256 of each.

A line of `jars.lock` is `<set> <group:artifact:version[:classifier]> <sha256> <size>`; `#` starts a comment.
The sets: `broker` is the embedded Kafka broker, `spark` is what PySpark lacks to read and write Kafka, `streams` is
Kafka Streams, which benchmarks compare with. A jar may be in several sets, with the same bytes.

`python -m tailrace.dev.jarlock SET DIRECTORY` prints the lines of a set for the jars in a directory of
Maven's repository layout, as made by `mvn dependency:copy-dependencies -Dmdep.useRepositoryLayout=true`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tailrace.errors import InstallError


@dataclass(frozen=True)
class Jar:
    """One jar. `sha256` and `size` fix its bytes, wherever they come from."""

    coordinates: str
    sha256: str
    size: int

    @property
    def filename(self) -> str:
        """Such as `kafka-clients-3.9.2.jar`."""
        return "-".join(self.coordinates.split(":")[1:]) + ".jar"

    @property
    def path(self) -> str:
        """Where a Maven repository keeps the jar, below its root."""
        group, artifact, version, *_ = self.coordinates.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{self.filename}"


def locked(set_name: str) -> list[Jar]:
    """The jars of a set, in the order of the lock file."""
    text = (files("tailrace.dev") / "jars.lock").read_text()
    jars = [jar for name, jar in _parse(text) if name == set_name]
    if not jars:
        raise InstallError(f"expected a set of jars named in jars.lock, got {set_name!r}")
    return jars


def _parse(text: str) -> Iterator[tuple[str, Jar]]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            set_name, coordinates, sha256, size = line.split()
            yield set_name, Jar(coordinates, sha256, int(size))


def lines(set_name: str, directory: Path) -> Iterator[str]:
    """The lock lines of a set for the jars under a directory of Maven's repository layout."""
    for file in sorted(directory.rglob("*.jar")):
        *group, artifact, version, filename = file.relative_to(directory).parts
        classifier = filename.removesuffix(".jar").removeprefix(f"{artifact}-{version}").removeprefix("-")
        coordinates = ":".join(filter(None, (".".join(group), artifact, version, classifier)))
        data = file.read_bytes()
        yield f"{set_name} {coordinates} {hashlib.sha256(data).hexdigest()} {len(data)}"


if __name__ == "__main__":
    sys.stdout.writelines(line + "\n" for line in lines(sys.argv[1], Path(sys.argv[2])))
