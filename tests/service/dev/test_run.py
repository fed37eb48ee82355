"""`tailrace dev` as a user runs it: what it prints, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from dev_process import Dev, kill_if_running
from tailrace.dev.data import opened
from tailrace.dev.ports import free_port


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_run_shows_its_stages_and_leaves_nothing_however_it_ends(tmp_path: Path) -> None:
    registry, ui = "http://ann:c4nary@127.0.0.1:1", str(free_port())
    dev = Dev(tmp_path / "data", "--also", "python ratings.py", TAILRACE_REGISTRY=registry, TAILRACE_SPARK_UI_PORT=ui)
    try:
        row = dev.until(r"row +(http://\S+/views/rating-averages/\d+)$")[1]
        for stage in ("java", "jars", "kafka", "redis", "pipeline", "materializer", "gateway", "also"):
            assert re.search(rf"^✓ {stage} ", dev.text, re.MULTILINE), dev.text
        with urllib.request.urlopen(row, timeout=10) as answer:
            assert json.load(answer)["movie_id"] == int(row.rpartition("/")[2])
        dev.assert_passes_on(b"c4nary", "pipeline", "gateway")
        dev.assert_closed()
        page = f"http://127.0.0.1:{ui}/api/v1/applications"
        with urllib.request.urlopen(page, timeout=10) as answer:
            assert json.load(answer)[0]["name"].startswith("tailrace ")
        pipeline = next(pid for pid, command in dev.processes().items() if "-m tailrace pipeline" in command)
        os.kill(pipeline, signal.SIGKILL)
        assert dev.ended() == 1
        assert "✗ pipeline was killed by SIGKILL; the end of its log:\n" in dev.text
        assert f"the whole log: {dev.data}/logs/pipeline.log" in dev.text
        dev.assert_gone()
    finally:
        kill_if_running(dev)

    second = Dev(dev.data)
    try:
        kept = second.until(r"row +(http://\S+/views/rating-averages/\d+)$")[1]
        assert kept.rpartition("/")[2].isdigit()
        second.signal(signal.SIGTERM)
        assert second.ended() == 0
        second.assert_gone()
    finally:
        kill_if_running(second)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_run_leaves_nothing_and_the_next_can_start(tmp_path: Path) -> None:
    dev = Dev(tmp_path / "data")
    dev.until("redis")
    dev.signal(signal.SIGKILL)
    dev.ended()
    dev.assert_gone()
    second = Dev(dev.data, "--fresh")
    second.until("redis")
    second.signal(signal.SIGINT)
    assert second.ended() == 0
    second.assert_gone()


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        dev = Dev(tmp_path / "data", "--port", str(port))
        assert dev.ended() == 1
    assert dev.text == (
        f"tailrace: --port {port} on 127.0.0.1: Address already in use: "
        "stop what uses it, or choose another with --port\n"
    )
    assert not dev.data.exists()


def test_a_data_directory_in_use_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "data"):
        dev = Dev(tmp_path / "data", "--fresh")
        assert dev.ended() == 1
    assert f"another `tailrace dev` (process {os.getpid()}) uses it" in dev.text


def test_a_command_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    dev = Dev(tmp_path / "data", "--also", "python 'ratings.py")
    assert dev.ended() == 1
    assert dev.text == 'tailrace: --also "python \'ratings.py": No closing quotation\n'
