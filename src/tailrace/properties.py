r"""Properties files, in Java's format: `name=value` lines, as the tools of Kafka and of schema registries read them.

    # a comment, and so is a line that begins with !
    name = value            a name ends at =, : or a blank; blanks around it mean nothing, those after the value do
    name  value             the same
    name = one, \
           two              a line goes on after a backslash at its end: `one, two`
    name = C:\\keys\tNo1    \t \n \r \f and \u00e9 are characters; any other after a backslash is itself

Java reads such a file as Latin-1 and other programs as UTF-8. Here it is UTF-8; what is written as \u00e9 means the
same to Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import SettingError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ESCAPED = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {"\\": "\\\\", **{one: f"\\{name}" for name, one in _CONTROLS.items()}}
_HEX = re.compile(r"u[0-9A-Fa-f]{4}")
_HALF = re.compile("[\ud800-\udfff]")
# A name, with a backslash only before a further character; then what ends it.
_NAME = re.compile(rf"((?:\\.|[^\\=:{_BLANKS}])*)[{_BLANKS}]*[=:]?[{_BLANKS}]*", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """One entry of a file, and the line on which it begins. The value may be secret, so `repr` leaves it out."""

    name: str
    value: str = field(repr=False)
    line: int


def read_properties(path: str | Path) -> dict[str, Entry]:
    """The entries of a file by name, in their order. Raises SettingError, with file and line, for what can't be read.

    No error holds a value.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingError(f"{path}: expected a file that can be read, got: {why}") from None
    # A byte that is no part of UTF-8 becomes half of a character here; an exception would hold all of the file.
    text = data.decode("utf-8-sig", "surrogateescape")
    if (wrong := _HALF.search(text)) is not None:
        line = len(_LINE_END.split(text[: wrong.start()]))
        raise SettingError(
            f"{path}:{line}: expected UTF-8, got other bytes; save it as UTF-8, or write such a character as \\u00e9"
        )
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str) -> dict[str, Entry]:
    """The entries of a text by name, in their order; `source` names it in errors. Raises SettingError, as above."""
    found: dict[str, Entry] = {}
    for number, line in _logical_lines(text):
        named = _NAME.match(line)
        assert named is not None  # noqa: S101 it matches every text
        try:
            name, value = _unescaped(named[1]), _unescaped(line[named.end() :])
        except ValueError as error:
            raise SettingError(f"{source}:{number}: {error}") from None
        if not name:
            raise SettingError(f"{source}:{number}: expected name=value, got no name")
        if name in found:
            raise SettingError(
                f"{source}:{number}: expected every name once, got that of line {found[name].line} again; remove "
                "one of them"
            )
        found[name] = Entry(name, value, number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that hold an entry, each with its number, joined with the lines that it goes on in."""
    held, begun = "", 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not held:
            if not line or line[0] in "#!":
                continue
            begun = number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        held += line[:-1] if goes_on else line
        if held and not goes_on:
            yield begun, held
            held = ""
    if held:
        yield begun, held


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    # Java writes a character beyond 0xffff as two halves.
    plain = _ESCAPED.sub(_character, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if _HALF.search(plain):
        raise ValueError("expected both halves of a character after \\u, got one")
    return plain


def _character(found: re.Match[str]) -> str:
    after = found[1]
    if not after.startswith("u"):
        return _CONTROLS.get(after, after)
    if not _HEX.fullmatch(after):
        raise ValueError("expected four hexadecimal digits after \\u, got other characters; write \\\\ for a backslash")
    return chr(int(after[1:], 16))


def properties_text(entries: Mapping[str, str]) -> str:
    """Entries as a text that Java reads as the same entries, whatever is in them."""
    return "".join(f"{_escaped(name, blanks=True)}={_escaped(value)}\n" for name, value in entries.items())


def _escaped(text: str, *, blanks: bool = False) -> str:
    found = "".join(_ESCAPES.get(one, one) for one in text)
    if blanks:
        return found.replace(" ", "\\ ").replace("=", "\\=").replace(":", "\\:")
    # A value begins after the blanks that follow the equals sign.
    return f"\\{found}" if found.startswith(" ") else found
