"""A checkpoint whose first batch was never finished."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

log = logging.getLogger(__name__)

# What a batch writes. `sources` and `metadata` say where and as what the query began, and stay.
_WRITTEN = ("offsets", "commits", "state")


def forget_unfinished(checkpoint: Path) -> bool:
    """Remove what is left of a first batch that was cut off; True where there was something.

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
