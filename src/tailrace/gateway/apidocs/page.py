"""The page of the documentation: Swagger UI, served from here, so that it works without the internet.

The page has no script and no style of its own, so that its policy need not allow any.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from tailrace.gateway.security_headers import OWN_PAGE, POLICY

# What the page loads: the package that a file is in, and its type.
_ASSETS = {
    "swagger-ui-bundle.js": ("fastapi_swagger.resources", "text/javascript"),
    "swagger-ui.css": ("fastapi_swagger.resources", "text/css"),
    "favicon-32x32.png": ("fastapi_swagger.resources", "image/png"),
    "docs.js": ("tailrace.gateway.apidocs", "text/javascript"),
}


def router(title: str) -> APIRouter:
    """The routes of the page and of what it loads, which is read once."""
    routes = APIRouter(include_in_schema=False)
    assets = {name: (files(package) / name).read_bytes() for name, (package, _) in _ASSETS.items()}
    template = (files("tailrace.gateway.apidocs") / "docs.html").read_text(encoding="utf-8")
    page = Template(template).substitute(title=escape(title))

    @routes.get("/")
    async def root() -> Response:
        return RedirectResponse("/docs")

    @routes.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(page, headers={POLICY: OWN_PAGE})

    @routes.get("/docs/{name}")
    async def asset(name: str) -> Response:
        if name not in assets:
            raise HTTPException(404)
        return Response(assets[name], headers={"Content-Type": _ASSETS[name][1], "Cache-Control": "max-age=86400"})

    return routes
