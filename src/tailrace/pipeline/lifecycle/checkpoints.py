"""Where the checkpoints of a pipeline are.

The pipeline itself makes, locks, lists and removes checkpoints, as files of this machine; Spark's tasks write their
state there. So it is a directory, and on a cluster one that every machine has at the same path.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.errors import SettingError
from tailrace.logs import without_password
from tailrace.settings import Settings

# `file:/x` is a URL to Spark, too. A path may hold a colon, but none that a slash follows in its first name.
_URL = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_IN_PROCESS = re.compile(r"local(\[.*\])?")


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
