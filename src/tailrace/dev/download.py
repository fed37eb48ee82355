"""One file over HTTP: resumed, retried, verified, and moved into place only when it is whole and right.

1. Bytes go to `<file>.part`. If that exists, it is continued with `Range`; a server that ignores `Range` starts it
   over.
2. The whole part is hashed. A wrong hash removes it, so that the next try starts clean. A part that was begun
   by another process may itself be damaged, so a continued download is first fetched once more from its start.
3. The part is synced to disk and renamed. A crash before that leaves a part, after it the right file.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tailrace.errors import InstallError

CHUNK = 1 << 16
TIMEOUT = 30.0
# Seconds between tries that brought nothing new; a try that brought bytes starts the list again.
BACKOFF = (0.5, 1.0, 2.0, 4.0)
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class _Interrupted(Exception):
    """The connection ended before the file did, or could not be made."""


def download(
    url: str,
    target: Path,
    *,
    sha256: str,
    size: int,
    advance: Callable[[int], None],
    backoff: tuple[float, ...] = BACKOFF,
) -> None:
    """Fetch a file whose hash and size are known. Only one process may do this for a target at a time."""
    part = target.with_name(target.name + ".part")
    continued = part.exists()
    if continued and part.stat().st_size > size:
        part.unlink()
    if part.exists():
        advance(part.stat().st_size)
    while True:
        _fetch(url, part, target.name, size, advance, backoff)
        if (got := sha256_of(part)) == sha256:
            break
        part.unlink()
        if not continued:
            raise InstallError(
                f"{target.name}: expected SHA-256 {sha256}, got {got} from {url}; the file was removed. Run the "
                "command again; if the hash stays wrong, the repository does not hold the locked jar: use another one"
            )
        continued = False
        advance(-size)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.rename(target)
    _sync_directory(target.parent)


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _fetch(
    url: str, part: Path, name: str, size: int, advance: Callable[[int], None], backoff: tuple[float, ...]
) -> None:
    failures = 0
    furthest = _length(part)
    while _length(part) < size or not part.exists():
        try:
            _continue(url, part, name, size, advance)
        except _Interrupted as error:
            reached = _length(part)
            failures = 0 if reached > furthest else failures + 1
            furthest = max(furthest, reached)
            if failures > len(backoff):
                raise InstallError(
                    f"{name}: {error}, {failures} times in a row, from {url}; check the network and run the command "
                    "again: the download continues where it stopped"
                ) from error
            time.sleep(backoff[failures - 1] if failures else 0)


def _continue(url: str, part: Path, name: str, size: int, advance: Callable[[int], None]) -> None:
    """One request. Returns if the part is then as long as the file, raises `_Interrupted` if it is shorter."""
    have = _length(part)
    request = urllib.request.Request(url, headers={"User-Agent": "tailrace", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with cast(http.client.HTTPResponse, urllib.request.urlopen(request, timeout=TIMEOUT)) as response:
            start = _start(response, name, url, size)
            if start != have:
                advance(-have)
                have = 0
            with part.open("ab" if have else "wb") as file:
                while have < size and (data := response.read(min(CHUNK, size - have))):
                    file.write(data)
                    have += len(data)
                    advance(len(data))
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:
                part.unlink(missing_ok=True)
                advance(-have)
            elif error.code not in _RETRIED:
                raise InstallError(
                    f"{name}: the repository answered {error.code} {error.reason} for {url}; "
                    "check that it is a Maven repository that holds this jar"
                ) from None
        raise _Interrupted(f"the repository answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _Interrupted(f"the download failed ({reason or type(error).__name__})") from error
    if have < size:
        raise _Interrupted(f"the connection ended after {have} of {size} bytes")


def _start(response: http.client.HTTPResponse, name: str, url: str, size: int) -> int:
    """The offset that the response starts at. Refuses a file of another size before its bytes are read."""
    start, total = 0, response.headers.get("Content-Length")
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if match is None:
            raise _Interrupted("the repository answered 206 without a usable Content-Range")
        start, total = int(match[1]), match[2] if match[2] != "*" else None
    if total is not None and int(total) != size:
        raise InstallError(
            f"{name}: expected {size} bytes, got {total} from {url}; the repository does not hold the locked jar: "
            "use another one"
        )
    return start


def _length(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
