"""The entries of a file while they are read: each is taken once, and what is left is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

from tailrace.errors import SettingError
from tailrace.logs import is_path
from tailrace.properties import Entry


class GivenEntries:
    """Entries by their usual names, and the errors that name their file and line.

    aliases: other names of entries, and the usual name of each.
    """

    def __init__(self, file: str, entries: Mapping[str, Entry], aliases: Mapping[str, str]) -> None:
        self.file = file
        self.files: list[Path] = []
        self._left: dict[str, Entry] = {}
        for entry in entries.values():
            name = aliases.get(entry.name, entry.name)
            before = self._left.setdefault(name, entry)
            if before is not entry and before.value != entry.value:
                raise self.contradiction(before, entry)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, *names: str) -> Entry | None:
        """The entry that is called by one of these names, which mean the same; None if there is none."""
        found = [self._left.pop(name) for name in names if name in self._left]
        for other in found[1:]:
            if other.value != found[0].value:
                raise self.contradiction(found[0], other)
        return found[0] if found else None

    def text(self, *names: str) -> str | None:
        """The value of such an entry; None if there is none, or if it is empty."""
        entry = self.take(*names)
        return entry.value.strip() or None if entry is not None else None

    @property
    def left(self) -> list[Entry]:
        """What nobody has taken."""
        return list(self._left.values())

    def any_of(self, prefix: str) -> Entry | None:
        """The first entry that is left whose name begins so."""
        return next((entry for name, entry in self._left.items() if name.startswith(prefix)), None)

    def wrong(self, entry: Entry | None, text: str) -> SettingError:
        """An error about an entry, or, without one, about the file."""
        return SettingError(
            f"{self.file}: {text}" if entry is None else f"{self.file}:{entry.line}: {entry.name}: {text}"
        )

    def unknown(self, entry: Entry, known: Collection[str], listed: str) -> SettingError:
        """The error if nobody has taken an entry. `listed` names the page that lists those that are known.

        It names the entry only if its name begins as a known one does: in a key or password that was broken into
        lines, a line is a name.
        """
        family, _, rest = entry.name.partition(".")
        near = difflib.get_close_matches(entry.name, known, 1)
        text = f"expected an entry that {listed} lists, got an unknown one"
        if near:
            return self.wrong(entry, f"{text}: is {near[0]} meant?")
        if rest and family in {one.partition(".")[0] for one in known}:
            return self.wrong(entry, text)
        return SettingError(f"{self.file}:{entry.line}: {text}: does the line before end without its backslash?")

    def contradiction(self, one: Entry, other: Entry) -> SettingError:
        """The error if two entries that mean the same differ."""
        return SettingError(
            f"{self.file}:{other.line}: {other.name}: expected the same as in line {one.line}, {one.name}, which means "
            "the same, got another value: remove one of the two"
        )

    def read(self, path: str) -> bytes:
        """The bytes of a file that an entry names. Raises ValueError if it can't be read.

        A relative path begins where this process runs, as for Kafka's own tools.
        """
        if not is_path(path):
            raise ValueError("expected the path of a file, got the content of one")
        found = Path(path.strip()).expanduser()
        self.files.append(found)
        try:
            return found.read_bytes()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"expected a file that can be read, got: {why}") from None
