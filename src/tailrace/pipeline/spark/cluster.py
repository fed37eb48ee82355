"""What protects Spark's connections: on a cluster a secret and encryption, in one process loopback.

Whoever reaches an open port of Spark's can run code as the user that runs it. So on a cluster every connection asks for
the secret that its machines share, and is encrypted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped, unused-ignore]

from tailrace.errors import InstallError, SettingError
from tailrace.pipeline.spark.java_options import given_options
from tailrace.settings import Settings

log = logging.getLogger(__name__)

# The setting that all machines of a cluster have the same of.
SHARED = "spark.authenticate.secret"
_IN_PROCESS = re.compile(r"local(\[.*\])?")
# These give each app a secret of its own.
_WITH_SECRETS = re.compile(r"yarn|k8s://.*")
_STANDALONE = re.compile(r"spark://(.+)")
# With it all connections have TLS, in place of the encryption by the secret.
TLS = "spark.ssl.rpc.enabled"
_WITH_TLS = re.compile(re.escape(TLS) + r"[\s=:]+true\b")
# How long a master may take to answer.
_PATIENCE = "15s"

LOCAL = {"spark.authenticate": "true"}
_CLUSTER = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Without it a peer that does not encrypt is taken as well.
    "spark.network.crypto.saslFallback": "false",
}
# Spark's defaults are the older ones. Both ends need the same, so a cluster may have chosen others.
_CHOSEN = {
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def in_process(master: str) -> bool:
    """Whether everything runs in the JVM of the pipeline."""
    return not master or _IN_PROCESS.fullmatch(master) is not None


def protection(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings by which Spark protects its connections. Never print them: one is the secret.

    Raises SettingError if a cluster needs a secret and none is given.
    """
    master, given = settings.text("spark-master"), given_options(environment)
    if in_process(master):
        return dict(LOCAL)
    if settings.text("spark-authentication") == "no":
        return {}
    found = {"spark.authenticate": "true"}
    if not _WITH_TLS.search(given):
        found = _CLUSTER | {name: value for name, value in _CHOSEN.items() if name not in given}
    secret, _ = settings.secret("spark-secret")
    if secret is not None:
        return found | {SHARED: secret}
    if _WITH_SECRETS.fullmatch(master) or SHARED in given:
        return found
    raise SettingError(
        f"TAILRACE_SPARK_SECRET: expected the secret that master and workers of {master} have as {SHARED}, got none: "
        "set it, or TAILRACE_SPARK_SECRET_FILE; docs/operations.md says how a cluster gets one. With "
        "--spark-authentication no everyone who reaches a port of Spark's can read rows and run code"
    )


def knock(jvm: Any, conf: Mapping[str, str], master: str) -> None:
    """Raise InstallError unless a master of a standalone cluster answers and takes what we have.

    Spark itself would try for a minute, and then say no more than that it has stopped.
    """
    standalone = _STANDALONE.fullmatch(master)
    if standalone is None:
        return
    java = jvm.org.apache.spark.SparkConf()
    for name, value in conf.items():
        java.set(name, value)
    for name in ("spark.rpc.lookupTimeout", "spark.network.auth.rpcTimeout", "spark.rpc.connectionTimeout"):
        java.set(name, _PATIENCE)
    entry = getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")()
    security = jvm.org.apache.spark.SecurityManager(java, jvm.scala.Option.empty(), entry)
    rpc = jvm.org.apache.spark.rpc.RpcEnv.create("tailrace", "localhost", "localhost", 0, java, security, 0, True)
    said = []
    try:
        for address in standalone[1].split(","):
            host, _, port = address.rpartition(":")
            try:
                rpc.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host.strip("[]"), int(port)), "Master")
            except (Py4JError, ValueError) as error:
                said.append(_reason(error))
            else:
                return
    finally:
        rpc.shutdown()
    raise InstallError(
        f"--spark-master: expected the master at {master} to answer and to take our secret and encryption, got: "
        f"{'; '.join(dict.fromkeys(said))}. See that it runs, and that {SHARED} and the settings of encryption are the "
        "same there; docs/operations.md has them"
    )


def _reason(error: Exception) -> str:
    """The first cause that says something of its own."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    said, cause = "", error.java_exception
    while cause is not None:
        text = (cause.getMessage() or "").splitlines()
        said = text[0] if text else said
        cause = cause.getCause()
    return said or type(error).__name__


def ui_port(settings: Settings) -> int | None:
    """The port of Spark's page; None if there is none. Raises SettingError on a cluster."""
    text, master = settings.text("spark-ui-port"), settings.text("spark-master")
    if not text:
        return None
    if not in_process(master):
        raise SettingError(
            f"--spark-ui-port: expected Spark in this process, because its page has no login and on a cluster Spark "
            f"opens it on all addresses, got --spark-master {master}: look at the master's page"
        )
    return int(text)


def warnings(master: str, *, protected: bool, guarded: bool, shuffles: bool) -> Iterator[str]:
    """What of Spark's connections is open, and what to do.

    protected: whether a cluster asks for a secret or a certificate, and encrypts. guarded: whether the shuffle of
    real-time mode does as well. shuffles: whether the app needs it.
    """
    if in_process(master):
        if shuffles and not guarded:
            yield (
                "without the part `shuffle` each task of a real-time view with state listens on all addresses of this "
                f"machine, on a free port ({_free_ports()}), and asks nobody for a secret: let no other machine reach "
                "these ports"
            )
        return
    policy = f"let nobody but the machines of the cluster reach their ports {_free_ports()}"
    if not protected:
        yield (
            f"Spark on {master} runs without authentication and encryption: everyone who reaches a port of the driver "
            f"or of an executor can read rows and run code. Set TAILRACE_SPARK_SECRET, or {policy} and those of master "
            "and workers"
        )
    elif shuffles and not guarded:
        yield (
            f"without the part `shuffle` each task of a real-time view with state listens on a free port of a machine "
            f"of {master}, asks nobody for a secret, and sends rows without encryption: {policy}"
        )


def _free_ports() -> str:
    """The ports that a system gives to those that take any; other machines may have another range."""
    with suppress(OSError):
        return "-".join(_PORT_RANGE.read_text().split())
    return "1024-65535"
