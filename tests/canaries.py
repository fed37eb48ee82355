"""Canaries: secrets that are like nothing else, and the search for them, in whatever form, in whatever was written.

A search answers with what it found where, so that a test can name the few places where a secret has to be.
"""

from __future__ import annotations

import base64
import re
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import redis
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from oracle import read_topics

# What was found where: place → the names of the secrets.
Found = dict[str, set[str]]


def forms(text: bytes) -> dict[str, bytes]:
    """The forms in which a text may turn up. Most escapes leave letters and digits as they are, so they need none."""
    found = {
        "plain": text,
        "hexadecimal": text.hex().encode(),
        "percent": b"".join(b"%%%02x" % one for one in text),
        "octal": b"".join(b"\\%03o" % one for one in text),
        "unicode": b"".join(b"\\u%04x" % one for one in text),
        "references": b"".join(b"&#%d;" % one for one in text),
        "utf-16": b"".join(bytes((one, 0)) for one in text),
    }
    for before in range(3):
        # What stands before moves a text within the groups of base64; what stands after changes its last characters.
        known = (before + len(text)) // 3 * 3
        coded = base64.b64encode((bytes(before) + text)[:known])[(0, 2, 3)[before] :]
        found[f"base64, {before} before"] = coded
        found[f"base64 of URLs, {before} before"] = coded.translate(bytes.maketrans(b"+/", b"-_"))
    return found


class Canaries:
    """Secrets by name, and the search for them."""

    def __init__(self) -> None:
        self._forms: dict[bytes, str] = {}

    def secret(self, name: str, more: str = "") -> str:
        """A new secret. `more` is added to it, such as characters that have to be escaped somewhere."""
        text = f"K4n{secrets.token_hex(10)}"
        self.watch(name, text)
        return text + more

    def watch(self, name: str, text: str | bytes) -> None:
        """Search for this, too."""
        data = text.encode() if isinstance(text, str) else text
        self._forms |= {form.lower(): name for form in forms(data).values()}

    def watch_key(self, name: str, pem: str) -> None:
        """Search for a private key, too: its number, and the first line of its text."""
        key = cast(EllipticCurvePrivateKey, load_pem_private_key(pem.encode(), None))
        self.watch(name, key.private_numbers().private_value.to_bytes(32, "big"))
        self.watch(name, pem.splitlines()[1])

    def names(self, data: bytes) -> set[str]:
        """The secrets that some bytes hold, in whatever case."""
        lower = data.lower()
        return {name for form, name in self._forms.items() if form in lower}

    def search(self, places: Iterable[tuple[str, bytes]]) -> Found:
        """The secrets in what was read at several places."""
        found: Found = {}
        for place, data in places:
            if names := self.names(data):
                found.setdefault(place, set()).update(names)
        return found


def files(directory: Path) -> Iterator[tuple[str, bytes]]:
    """The name and the content of every file below a directory, and of those in its archives."""
    for path in sorted(directory.rglob("*")):
        place = str(path.relative_to(directory))
        try:
            if not path.is_file():
                continue
            yield place, place.encode() + b"\n" + path.read_bytes()
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    yield from ((f"{place}!{name}", archive.read(name)) for name in archive.namelist())
        except FileNotFoundError:
            # It was removed meanwhile.
            continue


def descendants(*pids: int) -> list[int]:
    """Processes with all that they have started, also those that have left their parents but not the session."""
    parents: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1]), int(fields[3])
    found = set(pids)
    while more := {one for one, (parent, session) in parents.items() if found & {parent, session}} - found:
        found |= more
    return sorted(found)


def command_lines(*pids: int) -> Iterator[tuple[str, bytes]]:
    """What every user of the machine sees of processes and of all that they have started."""
    for pid in descendants(*pids):
        if (data := _of_process(pid, "cmdline")) is not None:
            yield f"command line of {_shown(data)}", data


def environments(*pids: int) -> Iterator[tuple[str, bytes]]:
    """What processes, and all that they have started, were given as environment."""
    for pid in descendants(*pids):
        line, data = _of_process(pid, "cmdline"), _of_process(pid, "environ")
        # At the moment of its start, a program has no command line yet.
        if line and data is not None:
            yield f"environment of {_shown(line)}", data


def topics(servers: str) -> Iterator[tuple[str, bytes]]:
    """Every record of every topic: key, value and headers."""
    for message in read_topics(servers):
        held = cast(list[tuple[str, bytes | None]], message.headers() or [])
        headers = b"".join(name.encode() + b"=" + (value or b"") for name, value in held)
        yield f"topic {message.topic()}", b"\n".join((message.key() or b"", message.value() or b"", headers))


def redis_keys(url: str) -> Iterator[tuple[str, bytes]]:
    """Every key of a Redis with its value, the names of its clients and its slow commands."""
    client: Any = redis.Redis.from_url(url)
    with client:
        read: dict[bytes, Callable[[bytes], object]] = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"list": lambda key: client.lrange(key, 0, -1),
            b"stream": client.xrange,
        }
        for key in client.scan_iter(count=1000):
            yield f"Redis key {key.decode(errors='replace')}", key + b"\n" + _flat(read[client.type(key)](key))
        yield "clients of Redis", _flat(client.client_list())
        yield "slow commands of Redis", _flat(client.slowlog_get(100))


def _flat(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, list | tuple | set):
        return b"\n".join(map(_flat, value))
    return str(value).encode()


def _of_process(pid: int, name: str) -> bytes | None:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return None


def _shown(line: bytes) -> str:
    """A command line as a short name: `java` or `tailrace gateway`, or its first word."""
    words = line.decode(errors="replace").split("\0")
    if "tailrace" in words:
        return " ".join(words[(at := words.index("tailrace")) : at + 2])
    return re.sub(r".*/", "", words[0])
