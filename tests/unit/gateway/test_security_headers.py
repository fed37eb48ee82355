"""Headers for browsers: what every answer has, what it may say itself, and which hosts are to be asked with TLS."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from tailrace.gateway.security_headers import EVERYWHERE, OWN_PAGE, Protected

STRICT = b"strict-transport-security"


def answered(scheme: str = "http", host: str | None = "gateway.example", *own: tuple[bytes, bytes]) -> list[Message]:
    """What an app says that answers with these headers."""
    heads = [] if host is None else [(b"host", host.encode("latin-1"))]
    said: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(own)})
        await send({"type": "http.response.body", "body": b"x"})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        said.append(message)

    asyncio.run(Protected(app)({"type": "http", "scheme": scheme, "headers": heads}, receive, send))
    return said


def test_an_answer_has_the_headers_and_its_body_is_left_alone() -> None:
    start, body = answered("http", "gateway.example", (b"content-type", b"text/plain"))
    assert start["headers"] == [(b"content-type", b"text/plain"), *EVERYWHERE]
    assert body == {"type": "http.response.body", "body": b"x"}


def test_a_page_has_the_policy_that_it_sets_itself_and_no_other() -> None:
    start, _ = answered("http", "gateway.example", (b"Content-Security-Policy", OWN_PAGE.encode()))
    assert [value for name, value in start["headers"] if name.lower() == b"content-security-policy"] == [
        OWN_PAGE.encode()
    ]


@pytest.mark.parametrize(
    "host", ["gateway.example", "gateway.example:8443", "gateway", "10.0.0.7:8443", "", None, "[:"]
)
def test_over_tls_a_host_is_to_be_asked_with_tls_from_now_on(host: str | None) -> None:
    assert (STRICT, b"max-age=31536000") in answered("https", host)[0]["headers"]
    assert STRICT not in dict(answered("http", host)[0]["headers"])


@pytest.mark.parametrize("host", ["localhost:8443", "LOCALHOST", "app.localhost", "127.0.0.1:8443", "[::1]:8443"])
def test_the_other_servers_of_a_developers_machine_are_still_asked_without_tls(host: str) -> None:
    assert STRICT not in dict(answered("https", host)[0]["headers"])


def test_no_policy_allows_anything_unsafe() -> None:
    for policy in (OWN_PAGE, dict(EVERYWHERE)[b"content-security-policy"].decode()):
        assert "unsafe" not in policy and "*" not in policy
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
