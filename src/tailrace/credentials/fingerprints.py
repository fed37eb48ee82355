"""Whether files have changed on disk: for passwords and certificates that are taken up while a process runs."""

from __future__ import annotations

from pathlib import Path


def fingerprints(files: tuple[Path, ...]) -> list[tuple[int, int, int] | None]:
    """What differs if any of these files has changed; None for one that is not there."""
    return [_fingerprint(file) for file in files]


def _fingerprint(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
