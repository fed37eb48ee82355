"""The options that the user gives Spark's JVM: ours must not contradict them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_VARIABLES = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)


def given_options(environment: Mapping[str, str]) -> str:
    """All options in the environment and in the settings file that Spark reads, as one text."""
    texts = [environment.get(name, "") for name in _VARIABLES]
    home = environment.get("SPARK_HOME")
    if folder := environment.get("SPARK_CONF_DIR") or (home and f"{home}/conf"):
        with suppress(OSError):
            texts.append(Path(folder, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)
