"""The data directory of `tailrace dev`, which one run leaves for the next."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import SettingError

_MADE = ("kafka", "redis", "checkpoints", "logs", "locks")
# No other user of the machine may look into a directory: it holds rows, events and secrets.
_PRIVATE = 0o700


class Data:
    """Where the parts keep their data and logs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kafka = directory / "kafka"
        self.redis = directory / "redis"
        self.checkpoints = directory / "checkpoints"
        self.logs = directory / "logs"
        self.locks = directory / "locks"

    @property
    def jwt_key(self) -> Path:
        """The secret of tokens, if `tailrace dev --secure` has made one."""
        return self.locks / "jwt.key"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def empty(self) -> None:
        """Remove what Tailrace has made here, and nothing else."""
        for name in _MADE:
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def turn_logs(self) -> None:
        """Keep the logs of the last run as `<name>.log.1`, so that those of this run start empty."""
        for log in self.logs.glob("*.log"):
            log.rename(log.with_name(log.name + ".1"))


@contextmanager
def opened(directory: Path) -> Iterator[Data]:
    """The data directory, for one process at a time. The kernel releases it however the process ends."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=_PRIVATE, exist_ok=True)
        for made in (directory / name for name in _MADE):
            # An earlier version, or a start by other means, may have let others in.
            if made.is_dir():
                made.chmod(_PRIVATE)
        descriptor = os.open(directory / "dev.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingError(f"--data {directory}: expected a directory to write to: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingError(
                f"--data {directory}: another `tailrace dev` (process {_owner(descriptor)}) uses it: "
                "stop that one, or give this one another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield Data(directory)
    finally:
        os.close(descriptor)


def _owner(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
