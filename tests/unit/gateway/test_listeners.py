"""Where the gateway listens: each address is its own, and what is wrong is said in the words of the settings."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tailrace.errors import SettingError
from tailrace.gateway.listeners import listen, listen_inside, url


@pytest.fixture
def clients() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0) as listener:
        yield listener


def test_the_two_ports_have_urls_of_their_own(clients: socket.socket) -> None:
    with listen_inside("127.0.0.1", 0, clients) as inner:
        assert url("https", clients) == f"https://127.0.0.1:{clients.getsockname()[1]}"
        assert url("http", inner) not in (url("http", clients), "http://127.0.0.1:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_the_inner_port_may_not_be_that_of_clients(clients: socket.socket, host: str) -> None:
    port = clients.getsockname()[1]
    with pytest.raises(SettingError, match=rf"^--admin-port: expected a free port on {host}, got {port}: .*\(--port\)"):
        listen_inside(host, port, clients)


def test_ports_in_use_and_unknown_addresses_are_told_by_the_setting(clients: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingError, match=rf"^--port: .* got {port}: Address already in use; stop the process"):
            listen("127.0.0.1", port)
        with pytest.raises(SettingError, match=rf"^--admin-port: .* got {port}: Address already in use; stop the proc"):
            listen_inside("127.0.0.1", port, clients)
    # The first is for documentation alone, the second can be no name.
    for host in ("192.0.2.1", "a..b"):
        with pytest.raises(SettingError, match=f"^--host: expected an address of this machine, got '{host}'"):
            listen(host, 0)
        with pytest.raises(SettingError, match=f"^--admin-host: expected an address of this machine, got '{host}'"):
            listen_inside(host, 0, clients)
