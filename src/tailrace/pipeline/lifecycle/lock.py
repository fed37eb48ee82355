"""One pipeline per checkpoint directory, on one host.

Pipelines on two hosts that share the directory are not kept apart: a shared file system may or may not pass the lock
on, and the id of a JVM means nothing on another host.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from tailrace.errors import CheckpointInUse

_PATIENCE = 15.0


class CheckpointLock:
    """Holds a checkpoint directory for as long as this process and its JVM live, against others of this host.

    The system lets go of the lock however the process ends. Its JVM writes on for a moment when the process is killed,
    and may be suspended; so the JVM's id is noted, and the next pipeline waits for it to be gone.
    Raises CheckpointInUse if the directory is held.
    """

    def __init__(self, directory: Path, *, patience: float = _PATIENCE) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._handle = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        owner, jvm = self._noted()
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise self._in_use(f"process {owner or 'unknown'}") from None
        deadline = time.monotonic() + patience
        while jvm and _is_spark(jvm):
            if time.monotonic() > deadline:
                os.close(self._handle)
                raise self._in_use(f"process {jvm}, the JVM of a pipeline that was killed")
            time.sleep(0.05)
        self._note(str(os.getpid()))

    def keep_for(self, jvm: int) -> None:
        """Note the JVM that writes to the directory."""
        self._note(f"{os.getpid()} {jvm}")

    def release(self) -> None:
        """Let the next pipeline have the directory; to be called when the JVM has stopped."""
        self._note("")
        os.close(self._handle)

    def _noted(self) -> tuple[str, str]:
        owner, _, jvm = os.pread(self._handle, 64, 0).decode(errors="replace").strip().partition(" ")
        return owner, jvm

    def _note(self, text: str) -> None:
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)

    def _in_use(self, holder: str) -> CheckpointInUse:
        return CheckpointInUse(
            f"checkpoints {self._directory}: expected no other pipeline, got {holder}: "
            "stop it, or give this one another --checkpoints directory. Only pipelines of one host are kept apart: see "
            "to it yourself that no other host uses this directory"
        )


def _is_spark(process: str) -> bool:
    """Whether a process runs and is a JVM of Spark; a process id may have been given to another program."""
    try:
        return b"org.apache.spark" in Path("/proc", process, "cmdline").read_bytes()
    except OSError:
        return False
