"""Java: found on the machine, or installed from the distribution if we are allowed to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tailrace.errors import InstallError

OLDEST = 17
PACKAGE = "openjdk-17-jre-headless"
# The package of a recent enough Java in newer distributions that have dropped 17.
_NEWER_PACKAGE = "default-jre-headless"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def ensure_java(say: Callable[[str], None] = print) -> Path:
    """The `java` to run: in JAVA_HOME, then on the PATH. If there is none and we are root, installs one."""
    if (java := find_java()) is not None:
        return java
    found = ", ".join(f"{path} ({version or 'not usable'})" for path, version in _candidates()) or "none"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InstallError(
            f"expected java {OLDEST} or newer in JAVA_HOME or on the PATH, got {found}: install the package {PACKAGE}"
        )
    say(f"installing {PACKAGE} (no java {OLDEST} or newer was found)")
    _install()
    if (java := find_java()) is not None:
        return java
    raise InstallError(f"apt-get installed {PACKAGE}, but no java {OLDEST} or newer is in JAVA_HOME or on the PATH")


def find_java(oldest: int = OLDEST) -> Path | None:
    """The first `java` that is new enough, or None."""
    return next((path for path, version in _candidates() if version is not None and version >= oldest), None)


def java_home(java: Path) -> Path | None:
    """The JAVA_HOME that this `java` belongs to; None for a shim that only passes the call on."""
    home = java.resolve().parent.parent
    return home if (home / "lib" / "modules").exists() else None


def major_version(text: str) -> int | None:
    """The major version in what `java -version` prints; 8 for `1.8.0_392`; None for anything else."""
    match = _VERSION.search(text)
    return int(match[1]) if match is not None else None


def _candidates() -> Iterator[tuple[Path, int | None]]:
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        yield java, _version_of(java)
    if (on_path := shutil.which("java")) is not None:
        yield Path(on_path), _version_of(Path(on_path))


def _version_of(java: Path) -> int | None:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return major_version(asked.stderr + asked.stdout)


def _install() -> None:
    # Images without manuals lack this directory, and the package fails to configure without it.
    Path("/usr/share/man/man1").mkdir(parents=True, exist_ok=True)
    _apt("update")
    try:
        _apt("install", "-y", "--no-install-recommends", PACKAGE)
    except InstallError:
        _apt("install", "-y", "--no-install-recommends", _NEWER_PACKAGE)


def _apt(*arguments: str) -> None:
    command = ["apt-get", "-qq", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise InstallError(f"{' '.join(command)} failed: {' '.join(last)}; install the package {PACKAGE} by hand")
