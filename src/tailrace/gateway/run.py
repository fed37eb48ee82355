"""The gateway process."""

from __future__ import annotations

import logging
import socket

from tailrace.errors import SettingError
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.server import GatewayServer
from tailrace.gateway.timing import Timing
from tailrace.settings import Settings
from tailrace.store.keys import default_prefix

log = logging.getLogger(__name__)

# A gateway that neither takes events nor can ask how far a changelog is.
NO_KAFKA = "none"


def run(app: str, settings: Settings, timing: Timing | None = None) -> int:
    """Serve the views of an app until SIGTERM or SIGINT, then drain. `timing` is for tests: settings have the rest.

    Raises SettingError, before anything is served, for an address that can't be listened on.
    """
    timing = timing or Timing(grace=settings.seconds("drain"), slow=settings.seconds("slow-client"))
    prefix = settings.text("prefix") or default_prefix(app)
    kafka = settings.text("kafka")
    gateway = Gateway(app, settings.text("redis"), prefix, timing, kafka="" if kafka == NO_KAFKA else kafka)
    listener = _listener(settings.text("host"), settings.number("port"))
    # Connections inherit it: a peer that vanished is found by what was written to it last, a keep-alive at the latest.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int((timing.slow + 60) * 1000))
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    # uvicorn says at `info` what is said here.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    log.info("gateway=listening app=%s url=%s", app, url)
    GatewayServer(gateway).run(sockets=[listener])
    log.info("gateway=stopped app=%s", app)
    return 0


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise SettingError(
            f"--host: expected an address of this machine, got {host!r}: {error.strerror}; 127.0.0.1 is for "
            "clients on this machine, 0.0.0.0 for all"
        ) from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # From here on a second gateway on this port is refused; connections wait until the server takes them.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise SettingError(
            f"--port: expected a free port on {host}, got {port}: {error.strerror}; stop the process that "
            "uses it, or choose another port (0 takes a free one)"
        ) from None
    return listener
