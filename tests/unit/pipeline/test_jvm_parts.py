"""The parts of the pipeline that are Java: their names, and what a setting may say of them."""

from __future__ import annotations

from argparse import Namespace

import pytest

from tailrace.errors import SettingError
from tailrace.pipeline.spark.jvm_parts import PARTS, SOURCES, chosen, told
from tailrace.settings import JVM_PARTS, Settings


def test_the_setting_knows_the_parts_that_there_are() -> None:
    assert tuple(PARTS) == JVM_PARTS


def test_every_source_belongs_to_a_part() -> None:
    named = {source for part in PARTS.values() for source in part.sources}
    assert named == {file.stem for file in SOURCES.glob("*.java")}


@pytest.mark.parametrize(
    ("text", "parts", "again"),
    [
        ("all", set(PARTS), ",".join(PARTS)),
        ("none", set(), "none"),
        ("json", {"json"}, "json"),
        ("shuffle, json", {"json", "shuffle"}, "json,shuffle"),
    ],
)
def test_parts_are_named_all_none_or_one_by_one(text: str, parts: set[str], again: str) -> None:
    assert Settings.read(Namespace(jvm_parts=text), {}).text("jvm-parts") == text
    assert chosen(text) == parts and told(chosen(text)) == again


@pytest.mark.parametrize("text", ["", "jsn", "json,,sink", "all,json", "none,json", "json sink"])
def test_another_name_is_told_with_those_that_there_are(text: str) -> None:
    with pytest.raises(SettingError, match=r"TAILRACE_JVM_PARTS: expected all, none, or some of json, sink, .*, got "):
        Settings.read(Namespace(), {"TAILRACE_JVM_PARTS": text})
