"""A pipeline says before anything starts that checkpoints can't be where it is told to keep them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from running import PATIENCE
from tailrace.dev.ports import free_port

EXAMPLE = Path(__file__).parents[3] / "examples" / "movies"


def refused(directory: Path, *flags: str) -> str:
    """What a pipeline says that does not start, and leaves nothing behind; there is no Kafka that it could ask."""
    command = [sys.executable, "-m", "tailrace", "pipeline", "movies:app", "--kafka", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(
        [*command, *flags],
        cwd=directory,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")},
            "PYTHONPATH": str(EXAMPLE),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert list(directory.iterdir()) == []
    return done.stderr


@pytest.mark.parametrize(
    "url", ["s3a://bucket/x", "hdfs://names:8020/x", "file:///tmp/x", "file:/tmp/x", "S3A://bucket/x"]
)
def test_a_url_is_no_directory(tmp_path: Path, url: str) -> None:
    said = refused(tmp_path, "--checkpoints", url)
    assert "--checkpoints: expected a directory" in said and f"got '{url}'" in said


def test_a_password_in_a_url_is_not_shown(tmp_path: Path) -> None:
    said = refused(tmp_path, "--checkpoints", "s3a://me:secret@bucket/x")
    assert "secret" not in said and "***@bucket/x" in said


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_a_path_on_a_cluster_must_be_said_to_be_shared(tmp_path: Path, master: str) -> None:
    said = refused(tmp_path, "--spark-master", master, "--spark-authentication", "no", "--checkpoints", "here")
    assert f"--checkpoints: expected a directory that every machine of {master} has" in said and "got 'here'" in said
    assert "--checkpoints-shared yes" in said
