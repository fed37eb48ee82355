"""Every answer says what a browser may do with it; the page of the documentation needs nothing that is unsafe."""

from __future__ import annotations

import re
import socket

import httpx
import pytest

from gateway_process import GatewayProcess, Store, row
from tailrace.gateway.security_headers import OWN_PAGE

# Written out, so that one that the gateway forgets is missed.
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/views/averages/1", 200),
        ("GET", "/views/averages", 200),
        ("HEAD", "/views/averages/1/events", 200),
        ("GET", "/views/averages/nothing", 404),
        ("GET", "/nothing", 404),
        ("GET", "/docs/nothing", 404),
        ("POST", "/views/averages/1", 405),
        ("GET", "/views/names/%FF", 400),
        ("GET", "/views/averages?token=x", 400),
        ("GET", "/", 307),
        ("GET", "/tailrace.js", 200),
        ("GET", "/docs/docs.js", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/asyncapi.json", 200),
        ("GET", "/health/live", 200),
        ("GET", "/health/ready", 200),
        ("GET", "/metrics", 200),
    ],
)
def test_an_answer_may_be_nothing_but_what_it_is(
    gateway: GatewayProcess, store: Store, method: str, path: str, status: int
) -> None:
    store.put("averages", "1", 1, row(1))
    found = httpx.request(method, gateway.url + path)
    assert found.status_code == status
    assert {name: found.headers.get_list(name) for name in HEADERS} == {name: [HEADERS[name]] for name in HEADERS}
    assert "strict-transport-security" not in found.headers


def test_so_may_streams_what_has_not_changed_and_answers_to_foreign_pages(
    gateway: GatewayProcess, store: Store
) -> None:
    store.put("averages", "2", 1, row(1))
    tap = gateway.follow("/views/averages/2/events")
    unchanged = gateway.get("/views/averages/2", If_None_Match="*")
    foreign = gateway.get("/views/averages/2", Origin="https://elsewhere.example")
    assert (tap.status, unchanged.status_code, foreign.status_code) == (200, 304, 403)
    for headers in (tap.head, unchanged.headers, foreign.headers):
        assert {name: headers[name] for name in HEADERS} == HEADERS
    tap.close()


def test_so_may_answers_to_what_is_no_request(gateway: GatewayProcess) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        link.sendall(b"nonsense\r\n\r\n")
        head = link.recv(65536).partition(b"\r\n\r\n")[0].decode()
    assert head.startswith("HTTP/1.1 400 ")
    assert HEADERS.items() <= dict(line.split(": ", 1) for line in head.split("\r\n")[1:]).items()


def test_the_page_of_the_documentation_has_no_script_and_no_style_in_it(
    gateway: GatewayProcess,
) -> None:
    page = gateway.get("/docs")
    assert page.headers.get_list("content-security-policy") == [OWN_PAGE]
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["x-frame-options"] == "DENY"
    assert not re.search(r"<style|\bstyle=|\bon\w+=|javascript:", page.text)
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page.text) == ["", ""]
