"""The gateway process."""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack

from tailrace.access.addresses import is_loopback, read_networks
from tailrace.access.configuration import read_limits, read_tokens
from tailrace.access.origins import read_origins
from tailrace.avro.registry import Registry
from tailrace.events.schemas import TIMEOUT, EventSchemas
from tailrace.gateway.connection.certificate import read_certificate
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.guard import FrontDoor
from tailrace.gateway.guard.token_access import TokenAccess
from tailrace.gateway.listeners import listen, listen_inside, url
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
    with ExitStack() as opened:
        listener = opened.enter_context(listen(settings.text("host"), settings.number("port")))
        inner = None
        if settings.text("admin-port"):
            host, port = settings.text("admin-host"), settings.number("admin-port")
            inner = opened.enter_context(listen_inside(host, port, listener))
        # Connections inherit it. A vanished peer is noticed by the last bytes written to it, at latest a keep-alive.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * timing.slow * 1000))
        door = guarded(gateway, settings, prefix, loopback=is_loopback(listener.getsockname()[0]))
        # The gateway itself logs what uvicorn logs at `info`.
        logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
        scheme = "http" if gateway.certificate is None else "https"
        log.info("gateway=listening app=%s url=%s", app, url(scheme, listener))
        if inner is not None:
            log.info("inner-port=listening app=%s url=%s", app, url("http", inner))
        if kafka:
            kafka.watch()
        GatewayServer(gateway, door, inner).run(sockets=[listener])
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
