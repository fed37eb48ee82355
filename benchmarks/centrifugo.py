"""Centrifugo, version 6, where its program is on the PATH or named by a flag."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from pathlib import Path

from load_client import Way
from tailrace.dev.parts import Part
from tailrace.dev.ports import LOOPBACK, free_port
from tailrace.errors import PartDied
from under_load import SSE, WEBSOCKET, connected, pinned, request, row


class Centrifugo:
    """Centrifugo with its memory engine, which is its fastest; rows are published by its batch API over HTTP."""

    def __init__(self, program: Path, place: Path, keys: int) -> None:
        self._keys = keys
        self._port = free_port()
        place.mkdir(parents=True, exist_ok=True)
        config = place / "centrifugo.json"
        config.write_text(json.dumps(centrifugo_config(self._port)))
        self.part = Part("centrifugo", pinned([str(program), "-c", str(config)]), place / "centrifugo.log")
        connected(self.part, self._port).close()
        self._api = http.client.HTTPConnection(LOOPBACK, self._port)

    def way(self, surface: str) -> Way:
        """A channel per key."""
        return centrifugo_way(self._port, surface)

    def publish(self, numbers: Sequence[int]) -> None:
        """One request with a command per row."""
        at = time.time_ns()
        commands = b",".join(
            b'{"publish":{"channel":"%d","data":%b}}' % (key, row(number, key, at))
            for number in numbers
            for key in range(self._keys)
        )
        body = b'{"commands":[%b]}' % commands
        try:
            self._api.request("POST", "/api/batch", body, {"Content-Type": "application/json"})
            answer = self._api.getresponse()
            text = answer.read()
        except (http.client.HTTPException, OSError) as error:
            raise PartDied(f"expected Centrifugo to publish within the 10 s of its server, got {error!r}") from None
        if answer.status != 200 or b'"error"' in text:
            raise PartDied(f"expected Centrifugo to publish, got {answer.status}: {text[:200]!r}")

    def stop(self) -> None:
        """End it."""
        self._api.close()
        self.part.stop()


def centrifugo_config(port: int) -> dict[str, object]:
    """Version 6: clients need no token, and it tells nobody that it runs."""
    return {
        "http_server": {"address": LOOPBACK, "port": port},
        "client": {"insecure": True, "allowed_origins": ["*"]},
        "http_api": {"insecure": True},
        "uni_sse": {"enabled": True},
        "uni_websocket": {"enabled": True, "join_push_messages": True},
        "usage_stats": {"disabled": True},
        "log": {"level": "error"},
    }


def centrifugo_way(port: int, surface: str) -> Way:
    """How clients get rows: by its one-way transports."""
    address = f"{LOOPBACK}:{port}"
    if surface == SSE:
        path = "/connection/uni_sse?cf_connect=%7B%22subs%22:%7B%22{key}%22:%7B%7D%7D%7D"
        return Way(address, request(path, SSE), ready='"connect":')
    path, first = "/connection/uni_websocket", '{"subs":{"{key}":{}}}'
    return Way(address, request(path, WEBSOCKET), ready='"connect":', first=first, websocket=True)
