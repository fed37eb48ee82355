"""One pipeline per checkpoint directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tailrace.errors import CheckpointInUse


def lock_checkpoints(directory: Path) -> int:
    """Hold the directory for as long as this process lives; the system lets go of it however the process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / ".lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(handle, 32).decode(errors="replace").strip()
        os.close(handle)
        raise CheckpointInUse(
            f"checkpoints {directory}: expected no other pipeline, got process {owner or 'unknown'}: "
            "stop it, or give this one another --checkpoints directory"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle
