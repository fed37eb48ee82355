"""The gateway process."""

from __future__ import annotations

import logging
import socket

from tailrace.access.addresses import is_loopback, read_networks
from tailrace.access.configuration import read_limits, read_tokens
from tailrace.access.origins import read_origins
from tailrace.avro.registry import Registry
from tailrace.errors import SettingError
from tailrace.events.schemas import TIMEOUT, EventSchemas
from tailrace.gateway.connection.certificate import read_certificate
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.guard import FrontDoor
from tailrace.gateway.guard.token_access import TokenAccess
from tailrace.gateway.server import GatewayServer
from tailrace.gateway.timing import Timing
from tailrace.kafka.brokers import Brokers
from tailrace.settings import Settings
from tailrace.store.layout.keys import default_prefix
from tailrace.store.read.restricted import RestrictedUsers
from tailrace.store.read.tickets import Tickets

log = logging.getLogger(__name__)

# The setting of a gateway without Kafka: it serves keys and feeds alone, and takes no events.
NO_KAFKA = "none"


def run(app: str, settings: Settings, timing: Timing | None = None) -> int:
    """Serve the views of an app until SIGTERM or SIGINT, then drain. Only tests give a `timing`.

    Raises SettingError, before anything is served, for an address that can't be listened on and for a certificate
    that can't be shown.
    """
    timing = timing or Timing(
        grace=settings.seconds("drain"),
        slow=settings.seconds("slow-client"),
        request=settings.seconds("request-deadline"),
    )
    prefix = settings.text("prefix") or default_prefix(app)
    kafka = Brokers("") if settings.text("kafka") == NO_KAFKA else Brokers.of(settings)
    registry = Registry.of(settings, timeout=TIMEOUT)
    gateway = Gateway(app, settings.redis(), prefix, timing, kafka=kafka, limits=read_limits(settings))
    gateway.feeds.limit = settings.number("feed-backlog")
    gateway.event_schemas = EventSchemas(registry)
    gateway.certificate = read_certificate(settings.text("tls-cert"), settings.text("tls-key"))
    if (certificate := gateway.certificate) is not None:
        gateway.metrics.watch(
            "certificate_ends",
            "When the certificate ends, in seconds since 1970.",
            lambda: certificate.ends.timestamp(),
        )
    listener = _listener(settings.text("host"), settings.number("port"))
    # Connections inherit it. A vanished peer is noticed by the last bytes written to it, at the latest a keep-alive.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * timing.slow * 1000))
    try:
        door = guarded(gateway, settings, prefix, loopback=is_loopback(listener.getsockname()[0]))
    except SettingError:
        listener.close()
        raise
    host, port = listener.getsockname()[:2]
    scheme = "http" if gateway.certificate is None else "https"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    # The gateway itself logs what uvicorn logs at `info`.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    log.info("gateway=listening app=%s url=%s", app, url)
    GatewayServer(gateway, door).run(sockets=[listener])
    log.info("gateway=stopped app=%s", app)
    return 0


def guarded(gateway: Gateway, settings: Settings, prefix: str, *, loopback: bool) -> FrontDoor:
    """Give a gateway its access, and return its front door. Raises SettingError."""
    tokens, cookie = read_tokens(settings, loopback=loopback), settings.text("auth-cookie")
    if tokens is not None:
        tickets, restricted = Tickets(gateway.servers, prefix), RestrictedUsers(gateway.servers, prefix)
        gateway.access = TokenAccess(
            tokens, tickets, restricted, gateway.revoked, gateway.known, gateway.predicates, cookie
        )
    local = loopback and tokens is None
    # Nobody who left `access` unset has thought of pages from elsewhere.
    named = local and not settings.text("access")
    origins = read_origins(settings.text("origins"), local=local, named=named, credentials=bool(cookie))
    opened = frozenset(one.strip() for one in settings.text("open").split(",") if one.strip())
    log.info("access=%s cookie=%s", "off" if tokens is None else "jwt", cookie or "none")
    return FrontDoor(origins, read_networks(settings.text("trusted-proxies")), opened)


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
