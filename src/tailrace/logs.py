"""Log lines: time, level, logger, message; to standard error."""

from __future__ import annotations

import logging
import re
from pathlib import Path

# A scheme, if there is one, and a login. It ends at the last @, because a user or a password that was not
# percent-encoded may hold one, or a slash.
_LOGIN = re.compile(r"\A(\w[\w+.\-]*://)?(.*)@", re.DOTALL)
_OPTION = re.compile(r"(?<=[?&])(\w*password)=[^&]*", re.IGNORECASE)


def log_to_stderr(level: str) -> None:
    """Send this process's log lines to standard error."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # It also logs as the root, with a stack trace, when the JVM ends during a call; one line elsewhere says so.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)


def without_password(url: str) -> str:
    """A URL without its password, as a log may show it; of a text that is no URL, without all that may be one."""
    return _LOGIN.sub(_without, _OPTION.sub(r"\1=***", url))


def is_path(text: str) -> bool:
    """Whether a text may be the path of a file, and is not what was meant to be in it."""
    return "\n" not in text.strip() and "-----BEGIN" not in text


def shown_path(path: str) -> str:
    """The path of a file with a secret, as an error may show it: a relative one may be the secret itself."""
    return repr(path) if path.startswith("/") and is_path(path) else "a text that is no absolute path"


def _without(found: re.Match[str]) -> str:
    scheme, login = found.groups()
    user, colon, _ = login.partition(":")
    if scheme is None:
        return "***@"
    return f"{scheme}{user}:***@" if colon else found[0]
