"""A connection of our own to a broker, which says what librdkafka does not: what is wrong with a certificate, or that
the listener wants another protocol."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from contextlib import suppress

from tailrace.kafka.config.reasons import expired
from tailrace.kafka.config.security import SASL_PLAINTEXT, SASL_SSL, SSL, Security

_TIMEOUT = 3.0
# How long to wait before a second look.
_AGAIN = 0.5
_OTHER_NAME = (
    "connect by a name that is in it, or have it issued for this one "
    "(ssl.endpoint.identification.algorithm=none checks no names)"
)
# An answer begins with its length, which is short; an alert of TLS begins with 21.
_LENGTH = b"\0"


def _question(api: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih8s", api, version, 1, 8, b"tailrace") + body
    return struct.pack(">i", len(request)) + request


# Metadata of no topic. A broker that wants a password first ends the connection.
_METADATA = _question(3, 1, struct.pack(">i", 0))
# The versions that the broker speaks, which it also says before a password.
_VERSIONS = _question(18, 0, b"")


def listener_problem(servers: str, security: Security) -> str | None:
    """Why the first of some brokers that answers refuses connections; None if it does not, or nobody answers."""
    if security.encrypted and (own := expired(security)) is not None:
        return f"{own}: renew it"
    for address in servers.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            found = _problem(host.strip("[]"), int(port), security)
            if found is not None:
                # A broker that stops or starts ends connections, too. It does not look the same a moment later.
                time.sleep(_AGAIN)
                found = _problem(host.strip("[]"), int(port), security)
            return found
        except (ValueError, OSError):
            # Nobody is there, or not now: that is an outage, and no refusal.
            continue
    return None


def _problem(host: str, port: int, security: Security) -> str | None:
    broker = f"{host}:{port}"
    with socket.create_connection((host, port), _TIMEOUT) as plain:
        if not security.encrypted:
            if _answers(plain, security):
                return None
        else:
            try:
                with _context(security).wrap_socket(plain, server_hostname=host) as shown:
                    answers = _answers(shown, security)
            except ssl.SSLCertVerificationError as error:
                return _untrusted(broker, error, security)
            except ssl.SSLError as error:
                return _alert(broker, error, security)
            except (ConnectionResetError, BrokenPipeError):
                return f"{broker} does not speak TLS: correct security.protocol, or the port"
            if answers:
                return None
    if not security.encrypted and _speaks_tls(host, port):
        wanted = SASL_SSL if security.mechanism else f"{SSL} or {SASL_SSL}"
        return f"{broker} speaks TLS: expected security.protocol={wanted}, got {security.protocol}"
    if not security.mechanism:
        wanted = SASL_SSL if security.encrypted else SASL_PLAINTEXT
        return f"{broker} wants a password: expected security.protocol={wanted}, got {security.protocol}"
    return None


def _answers(connection: socket.socket, security: Security) -> bool:
    """Whether a broker takes a question, in the protocol in which it was asked."""
    connection.settimeout(_TIMEOUT)
    try:
        connection.sendall(_VERSIONS if security.mechanism else _METADATA)
        return connection.recv(1) == _LENGTH
    except TimeoutError:
        return True
    except (ConnectionResetError, BrokenPipeError):
        return False


def _speaks_tls(host: str, port: int) -> bool:
    """Whether a listener speaks TLS, whatever it shows and wants to see."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        suppress(OSError),
        socket.create_connection((host, port), _TIMEOUT) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        return True
    return False


def _untrusted(broker: str, error: ssl.SSLCertVerificationError, security: Security) -> str:
    told = {
        10: f"the certificate of {broker} has expired: renew it on the broker",
        62: f"the certificate of {broker} is for another host name: {_OTHER_NAME}",
        64: f"the certificate of {broker} is for another address: {_OTHER_NAME}",
    }
    return told.get(
        error.verify_code,
        f"the certificate of {broker} is not trusted ({error.verify_message}): expected one signed by those in "
        f"{security.trusted_in}: correct ssl.truststore.location",
    )


def _alert(broker: str, error: ssl.SSLError, security: Security) -> str:
    """What the other end, or this one, ended a handshake with."""
    name = (error.reason or "").upper()
    if any(part in name for part in ("WRONG_VERSION_NUMBER", "RECORD_LAYER", "PACKET_LENGTH", "UNEXPECTED_EOF")):
        return f"{broker} does not speak TLS: correct security.protocol, or the port"
    if "ALERT" not in name:
        return f"{broker}: {name.replace('_', ' ').lower() or error}"
    if security.identity is None:
        return (
            f"{broker} wants a certificate of its clients: expected ssl.keystore.location (or ssl.certificate.location "
            "and ssl.key.location), got none"
        )
    what = name.partition("ALERT_")[2].replace("_", " ").lower()
    return (
        f"{broker} refuses the client's certificate {security.shown_in} ({what}): expected one that is valid, and "
        "signed by whom the broker trusts"
    )


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
