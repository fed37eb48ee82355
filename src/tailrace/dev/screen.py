"""What `tailrace dev` prints: a line per stage as it becomes ready, then the URLs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.text import Text

_WIDTH = 14


class Screen:
    """Prints to stdout. A closed terminal or pipe is no error, so that nothing keeps us from stopping the parts."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._tick = "✓" if "utf" in (sys.stdout.encoding or "").lower() else "ok"

    def ready(self, stage: str, detail: str, since: float | None = None) -> None:
        """A stage is ready; `since` is the monotonic time at which it was begun."""
        took = f" ({time.monotonic() - since:.1f} s)" if since is not None else ""
        line = Text.assemble((self._tick, "green"), f" {stage:<{_WIDTH}}", (f"{detail}{took}".strip(), "dim"))
        self._print(line)

    def say(self, text: str = "") -> None:
        """A plain line."""
        self._print(Text(text))

    def addresses(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        """A titled list of names and addresses."""
        self._print(Text(f"\n{title}\n", style="bold"))
        for name, address in lines:
            self._print(Text.assemble(f"  {name:<{_WIDTH}}", (address, "cyan")))

    def failed(self, text: str) -> None:
        """Why the run ends."""
        first, _, rest = text.partition("\n")
        self._print(Text.assemble(("✗ " if self._tick == "✓" else "failed: ", "red"), (first, "bold")))
        if rest:
            self.say(rest)

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """A spinner below the lines, on a terminal."""
        if self._console.is_terminal:
            with self._console.status(Text(text, style="dim")):
                yield
        else:
            yield

    def _print(self, line: Text) -> None:
        with suppress(OSError):
            self._console.print(line)
