"""Something that is done again and again beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], object], pause: float) -> Iterator[list[BaseException]]:
    """Do it until the block ends, with a pause of so many seconds each time; what goes wrong ends it.

    That is in the list at once, and fails the test when the block ends.
    """
    stop, wrong = threading.Event(), list[BaseException]()

    def go_on() -> None:
        try:
            while not stop.wait(pause):
                act()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join()
    assert not wrong, wrong
