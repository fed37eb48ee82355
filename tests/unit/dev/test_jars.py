"""The jar cache, on a small repository served over HTTP."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tailrace.dev import jars, repository
from tailrace.dev.jarlock import Jar, lines, locked
from tailrace.errors import InstallError

NAMES = ("one", "two", "three")


@dataclass
class Repository:
    """A Maven repository with three jars."""

    url: str
    root: Path
    jars: list[Jar]
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    root = tmp_path / "repository"
    for name in NAMES:
        data = os.urandom(50_000)
        jar = Jar(f"org.example:{name}:1.0", hashlib.sha256(data).hexdigest(), len(data))
        (root / jar.path).parent.mkdir(parents=True)
        (root / jar.path).write_bytes(data)
    found = [Jar(text.split()[1], text.split()[2], int(text.split()[3])) for text in lines("broker", root)]
    asked: list[str] = []

    class Answer(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Answer, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    monkeypatch.setenv(repository.VARIABLE, url.rstrip("/"))
    monkeypatch.setattr(jars, "locked", lambda _: found)
    yield Repository(url, root, found, asked)
    server.shutdown()
    server.server_close()
    thread.join()


def test_jars_are_downloaded_once(maven: Repository, tmp_path: Path) -> None:
    first = jars.ensure("broker", tmp_path / "cache")
    assert sorted(file.name for file in first) == ["one-1.0.jar", "three-1.0.jar", "two-1.0.jar"]
    assert jars.ensure("broker", tmp_path / "cache") == first
    assert len(maven.asked) == 3


def test_a_damaged_jar_in_the_cache_is_fetched_again(maven: Repository, tmp_path: Path) -> None:
    damaged = jars.ensure("broker", tmp_path / "cache")[0]
    right = damaged.read_bytes()
    damaged.write_bytes(b"x" * len(right))
    jars.ensure("broker", tmp_path / "cache")
    assert damaged.read_bytes() == right


def test_a_wrong_jar_is_refused_and_the_others_are_kept(maven: Repository, tmp_path: Path) -> None:
    (maven.root / maven.jars[0].path).write_bytes(b"x" * maven.jars[0].size)
    with pytest.raises(InstallError, match=r"one-1\.0\.jar: expected SHA-256"):
        jars.ensure("broker", tmp_path / "cache")
    assert not (tmp_path / "cache" / "one-1.0.jar").exists()


def test_processes_that_ask_at_once_take_turns(maven: Repository, tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from tailrace.dev import jars
from tailrace.dev.jarlock import Jar
jars.locked = lambda _: {maven.jars!r}
print(len(jars.ensure("broker", Path({str(tmp_path / "cache")!r}))))
"""
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["3\n"] * 3
    assert len(maven.asked) == 3


def test_a_directory_that_can_not_be_written_is_named(maven: Repository, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InstallError, match=r"can't write jars to .*cache.*--jars"):
        jars.ensure("broker", tmp_path / "cache")


def test_the_cache_is_below_the_users_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.cache_directory() == tmp_path / "tailrace" / "jars"


def test_a_file_has_the_same_bytes_in_every_set_of_the_lock() -> None:
    sets = [locked(name) for name in ("broker", "spark", "streams")]
    everything = {jar for jars_of_set in sets for jar in jars_of_set}
    assert len({jar.filename for jar in everything}) == len(everything)
    assert all(len(set(jars_of_set)) == len(jars_of_set) for jars_of_set in sets)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.size > 0 for jar in everything)


def test_coordinates_become_the_path_in_a_repository() -> None:
    jar = Jar("org.apache.kafka:kafka-clients:3.9.2:test", "", 0)
    assert jar.path == "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2-test.jar"


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(InstallError, match="got 'spork'"):
        locked("spork")


def test_the_repository_is_that_of_sparks_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(repository.VARIABLE, raising=False)
    assert re.fullmatch(r"https://\S+/maven2/", repository.root())
