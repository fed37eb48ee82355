"""The gateway serves the npm package as it is, and its wheel holds it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from fastapi import FastAPI
from starlette.testclient import TestClient

import tailrace
from tailrace.gateway.http.browser_client import router

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "clients" / "js"
FILES = [PACKAGE / "tailrace.js", *sorted((PACKAGE / "tailrace").glob("*.js"))]


def client() -> TestClient:
    app = FastAPI()
    app.include_router(router())
    return TestClient(app)


def test_every_file_of_the_package_is_served() -> None:
    served = client()
    for path in FILES:
        answer = served.get(f"/{path.relative_to(PACKAGE)}")
        assert answer.content == path.read_bytes(), path
        assert answer.headers["content-type"].startswith("text/javascript")
        assert (
            served.get(f"/{path.relative_to(PACKAGE)}", headers={"If-None-Match": answer.headers["etag"]}).status_code
            == 304
        )


def test_every_import_of_a_file_is_a_file_of_the_package() -> None:
    for path in FILES:
        for name in re.findall(r'from "(.+?)"', re.sub(r"/\*\*.*?\*/", "", path.read_text(), flags=re.DOTALL)):
            assert (path.parent / name).resolve() in FILES, f"{path} imports {name}"


def test_the_wheel_holds_what_is_served() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    held = {(ROOT / source).resolve(): place for source, place in wheel["force-include"].items()}
    for source, place in held.items():
        assert (ROOT / "src" / place).resolve() == source, "the link in the package leads to what the wheel holds"
    assert all(path in held or path.parent in held for path in FILES)


def test_both_packages_have_one_version() -> None:
    assert json.loads((PACKAGE / "package.json").read_text())["version"] == tailrace.__version__
