"""Log lines: time, level, logger, message; to standard error."""

from __future__ import annotations

import logging
import re
from pathlib import Path

# Up to the last @, because a password may hold one, or a slash, where it was not percent-encoded.
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):.*@")
_OPTION = re.compile(r"(?<=[?&])(\w*password)=[^&]*", re.IGNORECASE)


def log_to_stderr(level: str) -> None:
    """Send this process's log lines to standard error."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # It also logs as the root, with a stack trace, when the JVM ends during a call; that is told in one line elsewhere.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)


def without_password(url: str) -> str:
    """A URL as it may stand in a log."""
    return _PASSWORD.sub(r"\1:***@", _OPTION.sub(r"\1=***", url))
