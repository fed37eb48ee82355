"""The inner port: health and metrics at an address of their own. It serves nothing else, and asks for no token."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from tailrace.gateway.connection.http import LendingProtocol
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.http import operations
from tailrace.gateway.problems import answer_in_json
from tailrace.gateway.security_headers import Protected


def inner_application(gateway: Gateway) -> ASGIApp:
    """The ASGI app of the inner port."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    answer_in_json(app, "/health/live, /health/ready or /metrics", "Ask for everything else at the gateway's --port.")
    app.include_router(operations.router(gateway))
    return Protected(app)


async def serve_inner(gateway: Gateway, listener: socket.socket, state: ServerState) -> asyncio.Server:
    """Serve the inner port, without TLS. Its connections are among those of `state`, and guests of the doorway."""
    config = uvicorn.Config(
        inner_application(gateway),
        ws="none",
        timeout_keep_alive=max(1, round(gateway.timing.idle)),
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    made = partial(LendingProtocol, config=config, server_state=state, app_state={}, doorway=gateway.doorway)
    return await asyncio.get_running_loop().create_server(made, sock=listener)
