"""The data directory of `tailrace dev`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tailrace.dev.data import opened
from tailrace.errors import SettingError


def test_a_second_run_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with (
        opened(tmp_path),
        pytest.raises(SettingError, match=rf"process {os.getpid()}\) uses it"),
        opened(tmp_path),
    ):
        pass
    with opened(tmp_path):
        pass


def test_what_tailrace_has_made_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o755)
    (tmp_path / "mine").mkdir(mode=0o755)
    (tmp_path / "mine").chmod(0o755)
    with opened(tmp_path):
        pass
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755
    with opened(tmp_path / "new"):
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_only_what_tailrace_made_is_removed(tmp_path: Path) -> None:
    for name in ("kafka", "redis", "checkpoints", "logs", "tools", "mine"):
        (tmp_path / name).mkdir()
    with opened(tmp_path) as data:
        data.empty()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dev.lock", "mine", "tools"]


def test_the_logs_of_the_last_run_are_kept_beside_the_new_ones(tmp_path: Path) -> None:
    with opened(tmp_path) as data:
        data.logs.mkdir()
        data.log("kafka").write_text("last")
        data.turn_logs()
        assert (data.logs / "kafka.log.1").read_text() == "last"
        assert not data.log("kafka").exists()


def test_a_directory_of_the_users_own_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with opened(tmp_path):
        pass
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
