"""Free ports on the loopback address."""

from __future__ import annotations

import random
import socket
from contextlib import closing
from pathlib import Path

LOOPBACK = "127.0.0.1"
_FIRST = 10_000
_given: set[int] = set()
_share = (0, 1)


def take_from_share(number: int, of: int) -> None:
    """Have `free_port` take from one of several equal shares, for processes that start services side by side.

    Another process can't know that a port is given away until something listens on it.
    """
    global _share
    _share = (number, of)


def free_port(preferred: int | None = None) -> int:
    """A port that nothing listens on: the preferred one if it is free. Gives each port once per process.

    It is below the range that the kernel takes ports of outgoing connections from. Otherwise a client that
    retries while a service restarts could be given the very port, connect to itself and keep the service out.
    """
    if preferred is not None and preferred not in _given and is_free(preferred):
        _given.add(preferred)
        return preferred
    number, of = _share
    ports = range(_FIRST + number, _first_outgoing(), of)
    for port in random.sample(ports, min(200, len(ports))):
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    with closing(socket.socket()) as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a service could listen on the port."""
    return refusal(LOOPBACK, port) is None


def refusal(host: str, port: int) -> str | None:
    """Why nothing can listen on an address, in the system's words; None if something can."""
    try:
        with closing(socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)):
            return None
    except OSError as error:
        # Python adds the address in parentheses.
        return (error.strerror or str(error)).partition(" (")[0]


def _first_outgoing() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32_768
    return first if first > 11_000 else 32_768
