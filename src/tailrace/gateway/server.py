"""The web server: uvicorn, with a drain that ends streams properly."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from tailrace.gateway.app import application
from tailrace.gateway.connection.certificate import ServerCertificate
from tailrace.gateway.connection.doorway import Doorway
from tailrace.gateway.connection.http import LendingProtocol
from tailrace.gateway.connection.tls import TlsProtocol
from tailrace.gateway.connection.websocket import SocketProtocol
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.guard import FrontDoor, Guard
from tailrace.gateway.inner import serve_inner
from tailrace.gateway.paths import RawPaths
from tailrace.gateway.security_headers import Protected

_FRONT_DOOR = FrontDoor()
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GatewayServer(uvicorn.Server):
    """Serves until SIGTERM or SIGINT. Then it refuses new connections, ends every stream and returns.

    `inner` listens at the inner port, if there is one. It is served to the end, so that a drain can be watched.
    """

    def __init__(self, gateway: Gateway, door: FrontDoor = _FRONT_DOOR, inner: socket.socket | None = None) -> None:
        self._gateway = gateway
        self._inner = inner
        self._inner_server: asyncio.Server | None = None
        http: Callable[..., asyncio.Protocol] = partial(LendingProtocol, doorway=gateway.doorway)
        if gateway.certificate is not None:
            http = partial(_under_tls, http, gateway.certificate, gateway.doorway)
        ws = partial(SocketProtocol, messages=gateway.limits.messages, metrics=gateway.metrics)
        app = application(gateway, door.open, inner=inner is not None)
        super().__init__(
            uvicorn.Config(
                RawPaths(Protected(Guard(app, gateway, door))),
                loop="uvloop",
                http=cast(type[asyncio.Protocol], http),
                ws=cast(type[asyncio.Protocol], ws),
                ws_max_size=gateway.limits.message_bytes,
                ws_per_message_deflate=False,
                # A connection that has not answered a ping within two intervals is ended.
                ws_ping_interval=gateway.timing.keep_alive,
                ws_ping_timeout=2 * gateway.timing.keep_alive,
                timeout_keep_alive=max(1, round(gateway.timing.idle)),
                lifespan="on",
                log_config=None,
                access_log=False,
                # The guard decides whose X-Forwarded-For to believe.
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=int(gateway.timing.grace) + 2,
            )
        )
        gateway.doorway.connections = self.server_state.connections
        # uvicorn logs a line for each client that does not speak HTTP. A metric counts those clients.
        logging.getLogger("uvicorn.error").addFilter(lambda record: "Invalid HTTP request" not in record.getMessage())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals, and do not raise them again afterwards: a drained gateway has succeeded."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, also at the inner port."""
        await super().startup(sockets)
        if self._inner is not None:
            self._inner_server = await serve_inner(self._gateway, self._inner, self.server_state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain: new connections are refused, streams end in batches, lookups under way get their answer."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        await self._gateway.drain()
        if self._inner_server is not None:
            self.servers.append(self._inner_server)
        await super().shutdown(sockets)


def _under_tls(
    http: Callable[..., asyncio.Protocol],
    certificate: ServerCertificate,
    doorway: Doorway,
    *,
    server_state: ServerState,
    **options: Any,
) -> asyncio.Protocol:
    inner = http(server_state=server_state, **options)
    return TlsProtocol(certificate, inner, doorway, server_state.connections)
