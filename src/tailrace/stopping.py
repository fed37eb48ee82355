"""An orderly stop: SIGTERM and SIGINT set an event that the process's loop waits for."""

from __future__ import annotations

import signal
import threading
from types import FrameType


def stop_event() -> threading.Event:
    """An event that SIGTERM or SIGINT sets. Call this from the main thread."""
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return stopping
