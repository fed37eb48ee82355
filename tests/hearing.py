"""What was published in Redis, read up to a message of the reader's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from running import PATIENCE


def heard_before(listener: Any, end: bytes) -> Iterator[dict[str, Any]]:
    """The messages before the one on the channel `end`; fails if that does not come."""
    deadline = time.monotonic() + PATIENCE
    while (message := listener.get_message(timeout=1)) is None or message["channel"] != end:
        assert time.monotonic() < deadline, f"nothing came on {end!r}: is this listener still subscribed?"
        if message is not None:
            yield message
