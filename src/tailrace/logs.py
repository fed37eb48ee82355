"""Log lines: time, level, logger, message; to standard error."""

from __future__ import annotations

import logging
import re
from pathlib import Path

# Up to the last @, because a password that was not percent-encoded may hold one, or a slash.
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):.*@")
_OPTION = re.compile(r"(?<=[?&])(\w*password)=[^&]*", re.IGNORECASE)


def log_to_stderr(level: str) -> None:
    """Send this process's log lines to standard error."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # It also logs as the root, with a stack trace, when the JVM ends during a call; one line elsewhere says so.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)


def without_password(url: str) -> str:
    """A URL without its password, as a log may show it."""
    return _PASSWORD.sub(r"\1:***@", _OPTION.sub(r"\1=***", url))
