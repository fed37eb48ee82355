"""What `tailrace init` writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.dev.template import write_template
from tailrace.errors import SettingError

EXAMPLE = Path(__file__).parents[3] / "examples" / "movies" / "movies.py"


def test_the_first_module_is_the_movies_example(tmp_path: Path) -> None:
    written = write_template(tmp_path / "new")
    assert [file.name for file in written] == ["movies.py", "produce.py"]
    assert written[0].read_text() == EXAMPLE.read_text()
    compile(written[1].read_text(), "produce.py", "exec")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "produce.py").write_text("mine")
    with pytest.raises(SettingError, match=r"produce\.py exists"):
        write_template(tmp_path)
    assert (tmp_path / "produce.py").read_text() == "mine"
    assert not (tmp_path / "movies.py").exists()


def test_a_command_whose_output_nobody_reads_any_more_ends_without_a_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tailrace", "init", str(tmp_path / "new")]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")
