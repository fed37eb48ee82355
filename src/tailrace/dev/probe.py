"""Probes: whether a service answers a real request, asked over a plain socket."""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import urllib.error
import urllib.request
from contextlib import nullcontext

TIMEOUT = 2.0
_METADATA, _VERSION = 3, 4


def kafka_answers(host: str, port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Whether the broker names at least one live broker: then topics can be created, written and read.

    A Metadata request for no topics; the brokers in the answer are those that the controller has let in.
    """
    client = b"tailrace"
    body = struct.pack(">hhih", _METADATA, _VERSION, 1, len(client)) + client + struct.pack(">i?", 0, False)
    answer = _ask(host, port, struct.pack(">i", len(body)) + body, 16, tls)
    # size, correlation id, throttle time, number of brokers
    return len(answer) == 16 and struct.unpack(">iiii", answer)[3] > 0


def redis_answers(
    host: str, port: int, tls: ssl.SSLContext | None = None, login: tuple[str, str] | None = None
) -> bool:
    """Whether the server answers PING with PONG. A server that still loads its data does not.

    login: a user and its password, for a server that wants them.
    """
    if login is None:
        return _ask(host, port, b"PING\r\n", 7, tls) == b"+PONG\r\n"
    return _ask(host, port, f"AUTH {login[0]} {login[1]}\r\nPING\r\n".encode(), 12, tls) == b"+OK\r\n+PONG\r\n"


def http_answers(url: str, certificate: str = "") -> bool:
    """Whether GET answers 200. Over HTTPS the server has to show the certificate in this file, for whatever name."""
    try:
        context = _only(certificate) if url.startswith("https:") else None
        with urllib.request.urlopen(url, timeout=TIMEOUT, context=context) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except (OSError, http.client.HTTPException):
        return False


def _only(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _ask(host: str, port: int, request: bytes, size: int, tls: ssl.SSLContext | None) -> bytes:
    """The first `size` bytes of the answer; fewer if the peer closes, none if there is no peer."""
    answer = b""
    try:
        with (
            socket.create_connection((host, port), TIMEOUT) as plain,
            tls.wrap_socket(plain, server_hostname=host) if tls is not None else nullcontext(plain) as connection,
        ):
            connection.sendall(request)
            while len(answer) < size and (data := connection.recv(size - len(answer))):
                answer += data
    except OSError:
        pass
    return answer
