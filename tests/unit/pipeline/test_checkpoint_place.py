"""Which settings name a directory that all who write checkpoints have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import SettingError
from tailrace.pipeline.lifecycle.checkpoints import checkpoint_directory, open_to_others
from tailrace.settings import Settings


def directory(checkpoints: str, master: str = "", shared: str = "no") -> Path:
    return checkpoint_directory(
        Settings({"checkpoints": checkpoints, "spark-master": master, "checkpoints-shared": shared})
    )


@pytest.mark.parametrize("text", [".tailrace/checkpoints", "/var/lib/a:b", "a:b", "x/s3a://y", "~/x"])
@pytest.mark.parametrize("master", ["", "local", "local[2]", "local[*]", "local[2,3]"])
def test_a_path_is_taken_for_a_pipeline_in_one_process(text: str, master: str) -> None:
    assert directory(text, master) == Path(text).absolute()


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_a_path_is_taken_for_a_cluster_if_it_is_said_to_be_shared(master: str) -> None:
    assert directory("/shared/x", master, "yes") == Path("/shared/x")
    with pytest.raises(SettingError, match="--checkpoints-shared yes"):
        directory("/shared/x", master)


@pytest.mark.parametrize(
    "url", ["s3a://bucket/x", "hdfs://names/x", "file:///x", "file:/x", "S3A://bucket/x", "abfs://c@a/x"]
)
@pytest.mark.parametrize(("master", "shared"), [("", "no"), ("spark://host:7077", "yes")])
def test_a_url_is_never_taken(url: str, master: str, shared: str) -> None:
    with pytest.raises(SettingError, match="expected a directory") as refused:
        directory(url, master, shared)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "said"), [(0o700, False), (0o500, False), (0o750, True), (0o755, True), (0o701, True)]
)
def test_a_directory_that_others_get_into_is_told(tmp_path: Path, mode: int, said: bool) -> None:
    tmp_path.chmod(mode)
    found = open_to_others(tmp_path)
    assert (found is not None and f"mode {mode:o}" in found) if said else found is None
    tmp_path.chmod(0o700)
