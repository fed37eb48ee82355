"""The health port of processes without a web server: on loopback, unless told otherwise."""

from __future__ import annotations

import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tailrace.errors import SettingError
from tailrace.health import HealthServer


def test_the_port_is_on_loopback_unless_a_host_is_named() -> None:
    # All of 127.0.0.0/8 is this machine: the second address stands for one that others reach.
    ordinary = HealthServer(0, CollectorRegistry(), list)
    everywhere = HealthServer(0, CollectorRegistry(), list, host="0.0.0.0")  # noqa: S104
    try:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.2:{ordinary.port}/health/live", timeout=30)
        for server, host in ((ordinary, "127.0.0.1"), (everywhere, "127.0.0.1"), (everywhere, "127.0.0.2")):
            answer = httpx.get(f"http://{host}:{server.port}/health/live", timeout=30)
            assert answer.json() == {"live": True} and answer.headers["x-content-type-options"] == "nosniff"
    finally:
        ordinary.close()
        everywhere.close()


def test_an_address_that_can_not_be_listened_on_is_named() -> None:
    with pytest.raises(SettingError, match=r"^--health-host: expected an address of this machine, got 'no.invalid'"):
        HealthServer(0, CollectorRegistry(), list, host="no.invalid")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=rf"^--health-port: expected a free port on 127.0.0.1, got {port}: "):
            HealthServer(port, CollectorRegistry(), list)
