"""Checkpoints: the directory that holds them, and what is removed from one before a query starts.

The pipeline makes, locks, lists and removes checkpoints as files of this machine, and Spark's tasks write their state
there. So the place is a directory; on a cluster, one that every machine has at the same path.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

from tailrace.errors import SettingError
from tailrace.logs import without_password
from tailrace.settings import Settings

log = logging.getLogger(__name__)

# `file:/x` is a URL to Spark, too. A path may hold a colon, but none that a slash follows in its first name.
_URL = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_IN_PROCESS = re.compile(r"local(\[.*\])?")
# What a batch writes. `sources` and `metadata` say where and as what the query began, and stay.
_WRITTEN = ("offsets", "commits", "state")


def checkpoint_directory(settings: Settings) -> Path:
    """The directory that the settings name; raises SettingError if not all who write checkpoints have it."""
    text, master = settings.text("checkpoints"), settings.text("spark-master")
    if _URL.match(text):
        raise SettingError(
            "--checkpoints: expected a directory, because the pipeline locks, lists and removes checkpoints as files, "
            f"got {without_password(text)!r}: give a path; for a cluster, one on a file system that all machines mount"
        )
    if master and not _IN_PROCESS.fullmatch(master) and settings.text("checkpoints-shared") != "yes":
        raise SettingError(
            f"--checkpoints: expected a directory that every machine of {master} has at the same path, because each "
            f"task keeps its state there, got {text!r}: mount a shared file system there and say so with "
            "--checkpoints-shared yes, or leave out --spark-master"
        )
    return Path(text).absolute()


def open_to_others(directory: Path) -> str | None:
    """The warning if other users of the machine get into a directory of checkpoints; None if they don't."""
    mode = directory.stat().st_mode & 0o777
    if not mode & 0o077:
        return None
    return (
        f"--checkpoints: expected a directory that only this user gets into, because it holds rows, got {directory} "
        f"with mode {mode:o}: chmod 700 it, unless the others are meant to"
    )


def forget_unfinished(checkpoint: Path) -> bool:
    """Remove what is left of a first batch that was cut off; True if there was something.

    Spark refuses to begin a first batch where it finds anything of an earlier try, also a temporary file of the moment
    at which its process was killed, and would do so for ever. Nothing of such a batch counts: it is read again.
    """
    if any(path.name.isdigit() for path in _files(checkpoint / "commits")):
        return False
    left = [name for name in _WRITTEN if _files(checkpoint / name)]
    for name in left:
        shutil.rmtree(checkpoint / name)
    if left:
        log.warning("checkpoint %s: the first batch was cut off, and is begun anew", checkpoint)
    return bool(left)


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []
