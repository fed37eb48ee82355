"""How Spark's connections are protected, and what is said of those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import SettingError
from tailrace.pipeline.spark.cluster import SHARED, in_process, protection, ui_port, warnings
from tailrace.settings import Settings

MASTERS = ["spark://host:7077", "local-cluster[2,1,1024]"]
WITH_SECRETS = ["yarn", "k8s://https://host"]
ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}


def found(master: str, environment: dict[str, str] | None = None, **settings: str) -> dict[str, str]:
    given = {name.replace("_", "-"): text for name, text in settings.items()}
    return protection(Settings({"spark-master": master, **given}), environment or {})


def told(master: str, *, protected: bool = True, guarded: bool = True, shuffles: bool = True) -> list[str]:
    return list(warnings(master, protected=protected, guarded=guarded, shuffles=shuffles))


def spark_defaults(directory: Path, text: str) -> dict[str, str]:
    (directory / "spark-defaults.conf").write_text(text)
    return {"SPARK_CONF_DIR": str(directory)}


@pytest.mark.parametrize("master", ["", "local", "local[2]", "local[*]", "local[2,3]"])
def test_in_one_process_spark_makes_its_own_secret(master: str) -> None:
    assert in_process(master) and found(master) == {"spark.authenticate": "true"}


@pytest.mark.parametrize("master", MASTERS)
def test_a_cluster_asks_for_the_secret_and_encrypts(master: str) -> None:
    assert found(master, spark_secret="s3cr3t") == ENCRYPTED | {SHARED: "s3cr3t"}


@pytest.mark.parametrize("master", MASTERS)
def test_a_cluster_without_a_secret_is_refused_with_what_to_do(master: str) -> None:
    with pytest.raises(SettingError) as refused:
        found(master)
    assert all(one in str(refused.value) for one in (master, "TAILRACE_SPARK_SECRET_FILE", "--spark-authentication no"))


@pytest.mark.parametrize("master", WITH_SECRETS)
def test_yarn_and_kubernetes_need_no_secret_of_ours(master: str) -> None:
    assert found(master) == ENCRYPTED


@pytest.mark.parametrize("master", [*MASTERS, *WITH_SECRETS])
def test_protection_can_only_be_turned_off_by_name(master: str) -> None:
    assert found(master, spark_authentication="no") == {}


def test_a_secret_in_sparks_own_settings_is_taken(tmp_path: Path) -> None:
    assert found(MASTERS[0], spark_defaults(tmp_path, f"{SHARED} s3cr3t\n")) == ENCRYPTED


def test_a_cluster_may_have_another_cipher_but_not_none(tmp_path: Path) -> None:
    text = "spark.network.crypto.cipher AES/CTR/NoPadding\nspark.network.crypto.enabled false\n"
    given = found(MASTERS[0], spark_defaults(tmp_path, text), spark_secret="s3cr3t")
    assert "spark.network.crypto.cipher" not in given and given["spark.network.crypto.enabled"] == "true"


@pytest.mark.parametrize("line", ["spark.ssl.rpc.enabled true", "spark.ssl.rpc.enabled=true"])
def test_tls_takes_the_place_of_the_encryption_by_the_secret(tmp_path: Path, line: str) -> None:
    given = found(MASTERS[0], spark_defaults(tmp_path, line), spark_secret="s3cr3t")
    assert given == {"spark.authenticate": "true", SHARED: "s3cr3t"}


@pytest.mark.parametrize("master", ["", *MASTERS, *WITH_SECRETS])
def test_nothing_is_said_if_all_connections_are_protected(master: str) -> None:
    assert told(master) == [] and told(master, guarded=False, shuffles=False) == []


@pytest.mark.parametrize("master", MASTERS)
def test_an_open_cluster_is_told_with_ports_and_policy(master: str) -> None:
    (said,) = told(master, protected=False)
    assert "run code" in said and "TAILRACE_SPARK_SECRET" in said and "nobody but the machines of the cluster" in said


@pytest.mark.parametrize("master", ["", *MASTERS])
def test_sparks_own_shuffle_of_real_time_mode_is_told(master: str) -> None:
    (said,) = told(master, guarded=False)
    assert "asks nobody for a secret" in said and "ports" in said


def test_sparks_page_is_off_and_not_for_a_cluster() -> None:
    assert ui_port(Settings({})) is None
    assert ui_port(Settings({"spark-ui-port": "4040"})) == 4040
    with pytest.raises(SettingError, match="no login"):
        ui_port(Settings({"spark-ui-port": "4040", "spark-master": MASTERS[0]}))
