"""`tailrace.js`, served to pages: the files of the npm package that belong to this version of the gateway."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header, Response

from tailrace.gateway.problems import Problem


def _read() -> dict[str, bytes]:
    here = files("tailrace.gateway") / "browser"
    found = {"tailrace.js": (here / "tailrace.js").read_bytes()}
    for part in (here / "tailrace").iterdir():
        if part.name.endswith(".js"):
            found[f"tailrace/{part.name}"] = part.read_bytes()
    return found


def router() -> APIRouter:
    """The routes of the files, which are read once."""
    routes = APIRouter(include_in_schema=False)
    content = _read()
    # One tag for all files: if proxies ask again, a page never has parts of two versions.
    tag = f'"{hashlib.sha256(b"".join(content[name] for name in sorted(content))).hexdigest()[:16]}"'

    @routes.get("/tailrace.js")
    async def entry(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        return _answer("tailrace.js", if_none_match)

    @routes.get("/tailrace/{name}")
    async def part(name: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        return _answer(f"tailrace/{name}", if_none_match)

    def _answer(name: str, known: str | None) -> Response:
        if name not in content:
            raise Problem(404, "unknown path", path=f"/{name}", expected=sorted(content), remedy="Import /tailrace.js.")
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if known == tag:
            return Response(status_code=304, headers=headers)
        return Response(content[name], headers={**headers, "Content-Type": "text/javascript; charset=utf-8"})

    return routes
