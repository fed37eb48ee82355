"""Tokens for tests, and WebSocket clients that send them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

SECRET = "a secret that only this test and its gateway know, and no log"

ALL = {"views": True, "feeds": True, "topics": True, "operations": True}


def settings(directory: Path, **more: str) -> dict[str, str]:
    """The settings of a gateway that accepts `token`; names with underscores for dashes."""
    key = directory / "key"
    key.write_text(SECRET + "\n")
    given = {"access": "jwt", "jwt-algorithm": "HS256", "jwt-key": str(key), "jwt-leeway": "1ms"}
    return given | {name.replace("_", "-"): value for name, value in more.items()}


def token(sub: str = "c7", *, lasts: float = 300, rights: object = None, key: str = SECRET, **claims: Any) -> str:
    """A token of the subject `sub`, valid for `lasts` seconds."""
    now = time.time()
    held = {"sub": sub, "iat": int(now), "exp": now + lasts, "tailrace": ALL if rights is None else rights, **claims}
    return jwt.encode(held, key, algorithm="HS256")


def bearer(text: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {text}"}


class Socket:
    """A WebSocket client."""

    def __init__(self, port: int, path: str = "/ws", *, origin: str | None = None, **headers: str) -> None:
        self.link: ClientConnection = connect(
            f"ws://127.0.0.1:{port}{path}",
            origin=origin,  # type: ignore[arg-type]
            additional_headers={name.replace("_", "-"): value for name, value in headers.items()},
            compression=None,
            open_timeout=30,
            close_timeout=30,
        )

    def say(self, kind: str, **fields: object) -> None:
        self.link.send(json.dumps({"type": kind, **fields}))

    def hear(self, *kinds: str) -> dict[str, Any]:
        """The next message, or the next of one of these types."""
        while True:
            found: dict[str, Any] = json.loads(self.link.recv(30))
            if not kinds or found["type"] in kinds:
                return found

    def rest(self) -> list[dict[str, Any]]:
        """What the gateway sends until it ends the connection."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                found.append(json.loads(self.link.recv(30)))
            except ConnectionClosed:
                return found

    def code(self) -> int:
        """The code that the gateway ends the connection with."""
        self.rest()
        code = self.link.close_code
        assert code is not None and code != 1006, "expected a code, got the end of the connection"
        return code

    def close(self) -> None:
        self.link.close()
