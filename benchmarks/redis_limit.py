"""What Redis takes at most: pipelined SETs by `redis-benchmark`, or by a plain socket where that is missing."""

from __future__ import annotations

import csv
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

_UNPACKED = Path(__file__).parent.parent / ".tailrace" / "tools" / "redis-tools"
_PIPELINED, _SIZE = 500, 150


def find_redis_benchmark() -> Path | None:
    """The program: on the PATH, or where `scripts/setup bench` has unpacked it."""
    if (found := shutil.which("redis-benchmark")) is not None:
        return Path(found)
    unpacked = _UNPACKED / "usr" / "bin" / "redis-benchmark"
    return unpacked if unpacked.exists() else None


def sets_per_second(url: str, records: int, keys: int) -> tuple[float, str]:
    """SETs per second, and what has sent them."""
    program = find_redis_benchmark()
    if program is not None:
        return _by_program(program, url, records, keys), "redis-benchmark"
    return _by_socket(url, records, keys), "a socket"


def _by_program(program: Path, url: str, records: int, keys: int) -> float:
    parts = urlsplit(url)
    libraries = ":".join(str(path.parent) for path in _UNPACKED.glob("usr/lib/*/*.so.*"))
    where = ["-h", parts.hostname or "", "-p", str(parts.port)]
    what = ["-t", "set", "-n", str(records), "-r", str(keys), "-d", str(_SIZE), "-P", str(_PIPELINED), "-c", "4"]
    asked = subprocess.run(
        [str(program), *where, *what, "--csv"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
    )
    return float(next(row[1] for row in csv.reader(asked.stdout.splitlines()) if row and row[0] == "SET"))


def _by_socket(url: str, records: int, keys: int) -> float:
    parts = urlsplit(url)
    value, commands = b"x" * _SIZE, []
    for number in range(min(records, keys)):
        key = b"key:%012d" % number
        commands.append(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, _SIZE, value))
    bulks = [b"".join(commands[n : n + _PIPELINED]) for n in range(0, len(commands), _PIPELINED)]
    done, began = 0, time.monotonic()
    with socket.create_connection((parts.hostname, parts.port)) as link:
        while done < records:
            for bulk in bulks:
                link.sendall(bulk)
                count = bulk.count(b"*3\r\n")
                missing = 5 * count
                while missing:
                    missing -= len(link.recv(missing))
                done += count
    return done / (time.monotonic() - began)
