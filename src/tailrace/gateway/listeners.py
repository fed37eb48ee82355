"""The sockets that the gateway listens on: one for clients and, if there is an inner port, one for that."""

from __future__ import annotations

import errno
import socket

from tailrace.errors import SettingError

_REMEDY = "stop the process that uses it"


def listen(host: str, port: int) -> socket.socket:
    """Listen where clients come. Raises SettingError, in the words of the settings."""
    return _listening("--host", host, "--port", port, _REMEDY)


def listen_inside(host: str, port: int, clients: socket.socket) -> socket.socket:
    """Listen at the inner port. `clients` is where clients come: that can't be the same address."""
    same = clients.getsockname()[1] == port
    remedy = "clients come there (--port)" if same else _REMEDY
    return _listening("--admin-host", host, "--admin-port", port, remedy)


def url(scheme: str, listener: socket.socket) -> str:
    """Under which URL the gateway is reached there."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listening(host_flag: str, host: str, port_flag: str, port: int, remedy: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _no_address(host_flag, host, error) from None
    except UnicodeError:
        raise _no_address(host_flag, host, OSError(errno.EINVAL, "it can't be a name")) from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # From here on a second gateway on this port is refused; connections wait until the server takes them.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise _no_address(host_flag, host, error) from None
        raise SettingError(
            f"{port_flag}: expected a free port on {host}, got {port}: {error.strerror}; {remedy}, or choose another "
            "port (0 takes a free one)"
        ) from None
    return listener


def _no_address(host_flag: str, host: str, error: OSError) -> SettingError:
    return SettingError(
        f"{host_flag}: expected an address of this machine, got {host!r}: {error.strerror}; 127.0.0.1 is for clients "
        "on this machine, 0.0.0.0 for all"
    )
