"""One file over a real HTTP server that can misbehave."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tailrace.dev.download import download
from tailrace.errors import InstallError

DATA = os.urandom(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
QUICK = (0.01, 0.01)


class Server:
    """Serves DATA; `asked` holds the Range of each request, `cuts` how many bytes the next answers are cut to."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.data = DATA
        self.ranges = True
        server = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                server.asked.append(wanted)
                if server.statuses:
                    self.send_error(server.statuses.pop(0))
                    return
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
                body = server.data[start:]
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(server.data) - 1}/{len(server.data)}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/a.jar"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def fetch(server: Server, target: Path, size: int = len(DATA)) -> int:
    """Download, and return what the progress added up to."""
    counts: list[int] = []
    download(server.url, target, sha256=SHA256, size=size, advance=counts.append, backoff=QUICK)
    return sum(counts)


def test_a_whole_file_is_moved_into_place(server: Server, tmp_path: Path) -> None:
    assert fetch(server, tmp_path / "a.jar") == len(DATA)
    assert (tmp_path / "a.jar").read_bytes() == DATA
    assert [file.name for file in tmp_path.iterdir()] == ["a.jar"]


def test_a_part_is_continued_where_it_ended(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.jar.part").write_bytes(DATA[:1000])
    assert fetch(server, tmp_path / "a.jar") == len(DATA)
    assert server.asked == ["bytes=1000-"]
    assert (tmp_path / "a.jar").read_bytes() == DATA


def test_a_whole_part_needs_no_request(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.jar.part").write_bytes(DATA)
    assert fetch(server, tmp_path / "a.jar") == len(DATA)
    assert server.asked == []


def test_a_cut_connection_is_resumed_however_often(server: Server, tmp_path: Path) -> None:
    server.cuts = [50_000] * 5
    assert fetch(server, tmp_path / "a.jar") == len(DATA)
    assert server.asked == [None, *(f"bytes={n}-" for n in range(50_000, 300_000, 50_000))]
    assert (tmp_path / "a.jar").read_bytes() == DATA


def test_a_server_without_range_starts_the_part_over(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "a.jar.part").write_bytes(b"x" * 1000)
    assert fetch(server, tmp_path / "a.jar") == len(DATA)
    assert (tmp_path / "a.jar").read_bytes() == DATA


def test_a_damaged_part_is_fetched_once_more_from_its_start(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.jar.part").write_bytes(b"x" * 1000)
    assert fetch(server, tmp_path / "a.jar") == len(DATA)
    assert server.asked == ["bytes=1000-", None]


def test_a_part_that_is_too_long_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.jar.part").write_bytes(DATA + b"x")
    assert fetch(server, tmp_path / "a.jar") == len(DATA)


def test_a_wrong_hash_names_both_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.data = bytes(reversed(DATA))
    got = hashlib.sha256(server.data).hexdigest()
    with pytest.raises(
        InstallError, match=rf"a\.jar: expected SHA-256 {SHA256}, got {got} from .*Run the command again"
    ):
        fetch(server, tmp_path / "a.jar")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_size_is_refused_before_it_is_read(server: Server, tmp_path: Path) -> None:
    server.data = DATA[:-1]
    with pytest.raises(InstallError, match=r"a\.jar: expected 300000 bytes, got 299999"):
        fetch(server, tmp_path / "a.jar")


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    assert fetch(server, tmp_path / "a.jar") == len(DATA)


def test_a_server_that_stays_away_is_given_up_and_the_part_kept(server: Server, tmp_path: Path) -> None:
    server.cuts, server.statuses = [1000], []
    server.close()
    with pytest.raises(InstallError, match=r"Connection refused.*3 times in a row.*continues where it stopped"):
        fetch(server, tmp_path / "a.jar")


def test_a_jar_that_is_not_there_is_not_asked_for_twice(server: Server, tmp_path: Path) -> None:
    server.statuses = [404]
    with pytest.raises(InstallError, match=r"answered 404 Not Found for http://"):
        fetch(server, tmp_path / "a.jar")
    assert len(server.asked) == 1
