"""A first batch that was cut off is begun anew, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

from tailrace.pipeline.lifecycle.checkpoints import forget_unfinished


def _checkpoint(directory: Path, *files: str) -> Path:
    for file in files:
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1")
    return directory


def test_a_first_batch_that_was_cut_off_while_it_was_committed_is_begun_anew(tmp_path: Path) -> None:
    checkpoint = _checkpoint(
        tmp_path, "metadata", "sources/0/0", "offsets/0", "commits/.0.1be5.tmp", "state/0/0/1_ee66.changelog"
    )
    assert forget_unfinished(checkpoint)
    assert sorted(path.name for path in checkpoint.iterdir()) == ["metadata", "sources"]
    assert (checkpoint / "sources/0/0").exists()


def test_a_batch_that_was_finished_is_kept_whatever_was_cut_off_after_it(tmp_path: Path) -> None:
    files = ("offsets/0", "commits/0", "offsets/1", "commits/.1.1be5.tmp", "state/0/0/1_ee66.changelog")
    checkpoint = _checkpoint(tmp_path, *files)
    assert not forget_unfinished(checkpoint)
    assert all((checkpoint / file).exists() for file in files)


def test_a_checkpoint_that_is_not_there_yet_is_none_to_forget(tmp_path: Path) -> None:
    assert not forget_unfinished(tmp_path / "none")
    assert not forget_unfinished(_checkpoint(tmp_path, "metadata"))
