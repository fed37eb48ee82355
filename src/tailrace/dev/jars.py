"""Locked jars, downloaded once into the user's cache."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from tailrace.dev.cache import user_cache
from tailrace.dev.download import download, sha256_of
from tailrace.dev.jarlock import Jar, locked
from tailrace.dev.progress import Meter, Running, meter
from tailrace.dev.repository import root
from tailrace.errors import InstallError

# Most jars are small, so most of the time goes into round trips: fetch a few at once.
_AT_ONCE = 4


def cache_directory() -> Path:
    """Where jars are kept, in the user's cache."""
    return user_cache("jars", os.environ)


def ensure(set_name: str, directory: Path | None = None) -> list[Path]:
    """The jars of a set as files, with the bytes that the lock says. Downloads what is missing.

    Every call hashes every file: that costs a fraction of a second, and a jar that a full disk or a careless hand
    has changed is fetched again instead of failing inside a JVM. Processes that do this at once take turns.
    Raises InstallError if a jar can't be fetched; the jars fetched until then are kept.
    """
    directory = directory if directory is not None else cache_directory()
    jars = locked(set_name)
    if _missing(jars, directory):
        with _turn(directory):
            _download(set_name, _missing(jars, directory), directory, meter())
    return [directory / jar.filename for jar in jars]


def _missing(jars: list[Jar], directory: Path) -> list[Jar]:
    return [jar for jar in jars if not _holds(directory / jar.filename, jar)]


def _holds(file: Path, jar: Jar) -> bool:
    try:
        return file.stat().st_size == jar.size and sha256_of(file) == jar.sha256
    except OSError:
        return False


def _download(set_name: str, jars: list[Jar], directory: Path, progress: Meter) -> None:
    if not jars:
        return
    repository = root()
    stopped = Event()

    def advance(count: int) -> None:
        if stopped.is_set():
            raise CancelledError
        progress.advance(count)

    def fetch(jar: Jar) -> None:
        download(
            repository + jar.path,
            directory / jar.filename,
            sha256=jar.sha256,
            size=jar.size,
            advance=advance,
        )

    total = sum(jar.size for jar in jars)
    with Running(progress, f"{len(jars)} {set_name} jars", total), ThreadPoolExecutor(_AT_ONCE) as pool:
        downloads = [pool.submit(fetch, jar) for jar in jars]
        try:
            for waiting in downloads:
                waiting.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Hold the directory's lock. The kernel releases it however the process ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InstallError(
            f"can't write jars to {directory}: {error.strerror}; name another directory with --jars"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
