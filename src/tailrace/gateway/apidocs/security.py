"""How the documents of the API say what carries a token, if the gateway needs one."""

from __future__ import annotations

from typing import Any

from tailrace.gateway.guard.routes import is_open

Json = dict[str, Any]

_BEARER = "A JSON Web Token of the issuer that the gateway is configured for."
_COOKIE = "The same token in a cookie; requests that change something have to say their origin."
_TICKET = (
    "For one stream or WebSocket, within 30 seconds: `POST /tickets` gives it. For clients that can set no header."
)
_REFUSED = {
    "401": ("There is no token, or one that is not valid.", "no token", "a token in the header Authorization: Bearer"),
    "403": ("The token does not allow it.", "not allowed", "a view that the token allows"),
}


def secure(document: Json, cookie: str, opened: frozenset[str]) -> None:
    """Make an OpenAPI document say, per operation, what carries a token. `cookie` names a cookie that may.

    `opened` is what `--open` names: it needs no token.
    """
    schemes = _schemes(cookie, key="apiKey")
    document.setdefault("components", {})["securitySchemes"] = schemes
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if not isinstance(operation, dict):
                continue
            if is_open(path, opened):
                operation["security"] = []
                continue
            streams = method == "get" and path.endswith("/events")
            operation["security"] = [{name: []} for name in schemes if streams or name != "ticket"]
            for status, (description, error, expected) in _REFUSED.items():
                body = {"error": error, "expected": expected, "got": "…", "remedy": "…"}
                content = {"application/json": {"example": body}}
                operation.setdefault("responses", {}).setdefault(
                    status, {"description": description, "content": content}
                )


def secure_servers(document: Json, cookie: str) -> None:
    """Make an AsyncAPI document say what carries a token to its servers."""
    schemes = _schemes(cookie, key="httpApiKey")
    document["components"]["securitySchemes"] = schemes
    for server in document["servers"].values():
        server["security"] = [{"$ref": f"#/components/securitySchemes/{name}"} for name in schemes]


def _schemes(cookie: str, *, key: str) -> Json:
    found: Json = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": _BEARER}}
    if cookie:
        found["cookie"] = {"type": key, "in": "cookie", "name": cookie, "description": _COOKIE}
    found["ticket"] = {"type": key, "in": "query", "name": "ticket", "description": _TICKET}
    return found
