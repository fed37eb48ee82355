"""A TLS handshake of our own with a broker, which says what librdkafka does not: what is wrong with a certificate."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress

from tailrace.kafka.config.reasons import expired
from tailrace.kafka.config.security import Security

_TIMEOUT = 3.0
# After a handshake, a broker that misses a certificate says so with its first bytes.
_WORD = 0.5
_OTHER_NAME = (
    "connect by a name that is in it, or have it issued for this one "
    "(ssl.endpoint.identification.algorithm=none checks no names)"
)


def tls_problem(servers: str, security: Security) -> str | None:
    """Why the first of some brokers that answers takes no TLS connection; None if it does, or nobody answers."""
    if (own := expired(security)) is not None:
        return f"{own}: renew it"
    for address in servers.split(","):
        host, _, port = address.strip().rpartition(":")
        with suppress(ValueError, ConnectionRefusedError, TimeoutError, socket.gaierror):
            return _problem(host.strip("[]"), int(port), security)
    return None


def _problem(host: str, port: int, security: Security) -> str | None:
    context = _context(security)
    broker = f"{host}:{port}"
    try:
        with (
            socket.create_connection((host, port), _TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=host) as shown,
        ):
            shown.settimeout(_WORD)
            with suppress(TimeoutError):
                shown.recv(1)
        return None
    except ssl.SSLCertVerificationError as error:
        trusted = f"expected a certificate that {security.trusted_in} has signed"
        told = {
            10: f"the certificate of {broker} has expired: renew it on the broker",
            62: f"the certificate of {broker} is for another host name: {_OTHER_NAME}",
            64: f"the certificate of {broker} is for another address: {_OTHER_NAME}",
        }
        other = f"{broker}: {trusted}, got another one ({error.verify_message}): correct ssl.truststore.location"
        return told.get(error.verify_code, other)
    except ssl.SSLError as error:
        return _alert(broker, error, security)
    except ConnectionResetError:
        return f"{broker} ended the connection: expected a listener with TLS: see security.protocol"


def _alert(broker: str, error: ssl.SSLError, security: Security) -> str:
    """What the other end, or this one, ended a handshake with."""
    name = (error.reason or "").upper()
    own = f"the client's certificate {security.shown_in}"
    if "CERTIFICATE_REQUIRED" in name or ("HANDSHAKE_FAILURE" in name and security.identity is None):
        return (
            f"{broker} wants a certificate of its clients: expected ssl.keystore.location (or ssl.certificate.location "
            "and ssl.key.location), got none"
        )
    if security.identity is not None and "ALERT" in name:
        what = name.partition("ALERT_")[2].replace("_", " ").lower() or name.lower()
        return f"{broker} refuses {own} ({what}): expected one that is valid, and signed by whom the broker trusts"
    if "WRONG_VERSION_NUMBER" in name or "RECORD_LAYER" in name or "PACKET_LENGTH" in name:
        return f"{broker} does not speak TLS: expected a listener with TLS there: see security.protocol and the port"
    return f"{broker}: {name.replace('_', ' ').lower() or error}"


def _context(security: Security) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.checks_host
    if security.authorities:
        context.load_verify_locations(cadata=security.authorities)
    else:
        context.load_default_certs()
    if security.identity is not None:
        # The key has no business on a disk, and this module of Python's takes files alone.
        file = os.memfd_create("identity")
        try:
            os.write(file, (security.identity.key + security.identity.chain).encode())
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
    return context
