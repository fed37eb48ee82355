"""Properties files: each text here means what Java's own reader, `java.util.Properties`, made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import SettingError
from tailrace.properties import Entry, parse_properties, properties_text, read_properties

SECRET = "p4ss/w@rd"


def read(text: str) -> dict[str, str]:
    return {name: entry.value for name, entry in parse_properties(text, "client.properties").items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a=b\n  ! c=d\n \t\f\n", {}),
        ("a=b", {"a": "b"}),
        ("a:b\rc d\r\ne\tf\ng\fh", {"a": "b", "c": "d", "e": "f", "g": "h"}),
        (" a = b ", {"a": "b "}),
        ("a : = b", {"a": "= b"}),
        ("a==b", {"a": "=b"}),
        ("a = b # c ! d", {"a": "b # c ! d"}),
        ("a\nb=\nc = ", {"a": "", "b": "", "c": ""}),
        (r"a\ b\=\:c=d", {"a b=:c": "d"}),
        (r"\#a=b", {"#a": "b"}),
        (r"a=\t\n\r\f\\\q\=\"", {"a": '\t\n\r\f\\q="'}),
        (r"a\u003d=\u00E9\uD83D\uDE00", {"a=": "é😀"}),
        ("ä=é😀", {"ä": "é😀"}),
        ("a=b, \\\n    c\nd=e", {"a": "b, c", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
        ("a=b\\\r\n# c", {"a": "b# c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n# a\nb=c", {"b": "c"}),
        ("a\\\n  b=c", {"ab": "c"}),
        ("a=b\u2028\x85\x0bc", {"a": "b\u2028\x85\x0bc"}),
        ("sasl.mechanism=PLAIN\n" + "sasl.jaas.config=a.B required \\\n  username=\"u\" \\\n  password=\"p\";", {
            "sasl.mechanism": "PLAIN", "sasl.jaas.config": 'a.B required username="u" password="p";'
        }),
    ],
)  # fmt: skip
def test_a_text_means_what_it_means_to_java(text: str, expected: dict[str, str]) -> None:
    assert read(text) == expected


def test_each_entry_has_the_line_on_which_it_begins() -> None:
    entries = parse_properties("# one\n\na=b\\\n  c\r\n\rd=e\n\\\nf=g", "x").values()
    assert [(entry.name, entry.line) for entry in entries] == [("a", 3), ("d", 6), ("f", 8)]


def test_the_value_is_not_in_the_repr() -> None:
    assert SECRET not in repr(Entry("basic.auth.user.info", SECRET, 3))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{SECRET}=b\n\n{SECRET}", "client.properties:3: expected every name once, got that of line 1 again"),
        (f"a={SECRET}\\u12g4", "client.properties:1: expected four hexadecimal digits"),
        (f"a={SECRET}\\u12", "client.properties:1: expected four hexadecimal digits"),
        (f"a={SECRET}\\ud83d", "client.properties:1: expected both halves"),
        (f"a=b\n={SECRET}", "client.properties:2: expected name=value, got no name"),
    ],
)
def test_what_cant_be_read_is_told_with_its_line_and_without_its_value(text: str, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_properties(text, "client.properties")
    assert str(caught.value).startswith(says) and SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__context__ or "")


def test_a_file_is_read_as_utf_8_with_or_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"\xef\xbb\xbfa=" + "é".encode())
    assert read_properties(path) == {"a": Entry("a", "é", 1)}
    path.write_bytes(b"a=b\nc=\xe9")
    with pytest.raises(SettingError, match=rf"{path}:2: expected UTF-8"):
        read_properties(str(path))


@pytest.mark.parametrize("name", ["missing.properties", ".", "\0"])
def test_a_file_that_cant_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="expected a file that can be read, got: "):
        read_properties(tmp_path / name)


def test_a_text_of_entries_is_read_as_the_same_entries() -> None:
    entries = {"a": "b", "a b:c=d": "  x\\y\tz\n-----END\r\f", "é": "#!=: ", "empty": ""}
    assert read(properties_text(entries)) == entries
