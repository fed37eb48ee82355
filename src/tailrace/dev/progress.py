"""What a download shows on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class Meter(Protocol):
    """A download tells it how it goes. `advance` is called from several threads, and with a negative count if
    bytes have to be fetched again."""

    def begin(self, label: str, total: int) -> None:
        """`total` bytes are about to be fetched."""

    def advance(self, count: int) -> None:
        """`count` more bytes are here."""

    def end(self) -> None:
        """Nothing more will come, whether the download is complete or not."""


class Lines:
    """One line when a download begins and one when it is complete."""

    def __init__(self) -> None:
        self._label = ""
        self._left = 0

    def begin(self, label: str, total: int) -> None:
        self._label, self._left = label, total
        print(f"downloading {label} ({_megabytes(total)})", file=sys.stderr, flush=True)

    def advance(self, count: int) -> None:
        self._left -= count

    def end(self) -> None:
        if self._left == 0:
            print(f"downloaded {self._label}", file=sys.stderr, flush=True)


class Bar:
    """A progress bar that disappears when the download ends."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )

    def begin(self, label: str, total: int) -> None:
        self._progress.start()
        self._task = self._progress.add_task(label, total=total)

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def end(self) -> None:
        self._progress.stop()


class Running:
    """A meter between `begin` and `end`, for a `with` statement."""

    def __init__(self, meter: Meter, label: str, total: int) -> None:
        self._meter, self._label, self._total = meter, label, total

    def __enter__(self) -> Self:
        self._meter.begin(self._label, self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.end()


def meter() -> Meter:
    """The meter that suits stderr."""
    return Bar() if sys.stderr.isatty() else Lines()


def _megabytes(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB"
