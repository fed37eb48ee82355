"""The bill of materials names everything that is locked, with the hashes by which it is locked."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text() -> str:
    done = subprocess.run([ROOT / "scripts" / "sbom"], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@pytest.fixture(scope="module")
def parts(text: str) -> dict[str, dict[str, Any]]:
    return {part["purl"]: part for part in json.loads(text)["components"]}


def test_the_bill_follows_its_schema(text: str) -> None:
    assert json.loads(text)["bomFormat"] == "CycloneDX"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_every_locked_package_is_named_with_the_hashes_of_its_files(parts: dict[str, dict[str, Any]]) -> None:
    lock = (ROOT / "requirements" / "run.txt").read_text()
    locked = re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    assert locked
    for name, version in locked:
        assert f"pkg:pypi/{name}@{version}" in parts
    kept = {one["value"] for part in parts.values() for one in part.get("properties", ())}
    assert set(re.findall(r"--hash=(\S+)", lock)) <= kept


def test_every_jar_that_runs_is_named_with_its_hash(parts: dict[str, dict[str, Any]]) -> None:
    lines = (ROOT / "src" / "tailrace" / "dev" / "jars.lock").read_text().splitlines()
    locked = [line.split() for line in lines if line.startswith(("broker ", "spark "))]
    assert locked
    by_hash = {one["content"]: part for part in parts.values() for one in part.get("hashes", ())}
    for _, coordinates, sha256, _ in locked:
        group, artifact, version, *_ = coordinates.split(":")
        found = by_hash[sha256]
        assert (found["group"], found["name"], found["version"]) == (group, artifact, version)


def test_licences_are_named_if_packages_say_them(parts: dict[str, dict[str, Any]]) -> None:
    (fastapi,) = [part for purl, part in parts.items() if purl.startswith("pkg:pypi/fastapi@")]
    assert fastapi["licenses"] == [{"license": {"id": "MIT"}}] or fastapi["licenses"] == [{"expression": "MIT"}]
