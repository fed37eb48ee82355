"""The registry: a real one, and answers that a real one gives only when something is wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from fastavro import parse_schema

from registry_server import RegistryServer
from tailrace.avro.registry import Registry
from tailrace.errors import RegistryError, SchemaRefused, TailraceError, Unreachable

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, bytes]]
SECRET = "p4ss/w@rd"
ENCODED = "p4ss%2Fw%40rd"


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}


def register(server: RegistryServer, subject: str, schema: Any, **more: Any) -> int:
    body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
    answer = httpx.post(f"{server.url}/subjects/{subject}/versions", json=body)
    answer.raise_for_status()
    return int(answer.json()["id"])


def test_a_subject_has_a_newest_schema_and_all_its_versions(registry: RegistryServer, fresh: str) -> None:
    subject = f"ratings/{fresh} ü-value"
    quoted = f"ratings%2F{fresh}%20%C3%BC-value"
    one, two = record(f"R{fresh}", "int"), record(f"R{fresh}", "long")
    first, second = register(registry, quoted, one), register(registry, quoted, two)
    found = Registry.at(registry.url + "/")
    id, text = found.latest(subject)
    assert id == second and json.loads(text) == two
    assert {id: json.loads(text) for id, text in found.versions(subject).items()} == {first: one, second: two}
    assert json.loads(found.by_id(first) or "") == one


def test_an_id_that_the_registry_does_not_have_is_none(registry: RegistryServer) -> None:
    found = Registry.at(registry.url)
    assert found.by_id(2_000_000_000) is None and found.by_id(2**31 - 1) is None


def test_an_unknown_subject_is_told_with_what_to_do(registry: RegistryServer, fresh: str) -> None:
    for ask in (Registry.at(registry.url).latest, Registry.at(registry.url).versions):
        with pytest.raises(RegistryError, match=f"{fresh}-value.*register a schema"):
            ask(f"{fresh}-value")


def test_a_schema_of_another_type_is_refused(registry: RegistryServer, fresh: str) -> None:
    id = register(registry, f"{fresh}-value", 'syntax = "proto3"; message R { int32 a = 1; }', schemaType="PROTOBUF")
    found = Registry.at(registry.url)
    with pytest.raises(SchemaRefused, match="expected an Avro schema, got one of type PROTOBUF"):
        found.latest(f"{fresh}-value")
    with pytest.raises(SchemaRefused, match=f"id {id}"):
        found.by_id(id)
    assert found.versions(f"{fresh}-value") == {}


def test_references_are_inlined_recursively(registry: RegistryServer, fresh: str) -> None:
    space = f"org.s{fresh}"
    genre = {"type": "enum", "name": "Genre", "namespace": space, "symbols": ["DRAMA", "COMEDY"]}
    title = {**record("Title", "string", "Genre"), "namespace": space}
    rating = {**record("Rating", f"{space}.Title", ["null", f"{space}.Genre"], f"{space}.Title"), "namespace": "net"}

    def to(name: str) -> dict[str, Any]:
        return {"name": f"{space}.{name}", "subject": f"{fresh}-{name}", "version": 1}

    register(registry, f"{fresh}-Genre", genre)
    register(registry, f"{fresh}-Title", title, references=[to("Genre")])
    id = register(registry, f"{fresh}-value", rating, references=[to("Title"), to("Genre")])
    found = Registry.at(registry.url)
    text = found.by_id(id) or ""
    assert found.latest(f"{fresh}-value") == (id, text)
    whole = json.loads(text)
    assert whole["fields"][0]["type"]["fields"][1]["type"]["symbols"] == ["DRAMA", "COMEDY"]
    assert whole["fields"][2]["type"] == f"{space}.Title" and text.count("symbols") == 1
    parse_schema(whole)


@pytest.fixture
def stub() -> Iterator[Callable[[Answer], str]]:
    """Serves one answer to every request; gives its host and port."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def serve(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answer(self)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"127.0.0.1:{server.server_address[1]}"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def failure(url: str) -> TailraceError:
    with pytest.raises(TailraceError) as caught:
        Registry.at(url, timeout=5).by_id(17)
    assert "p4ss" not in str(caught.value) and "p4ss" not in repr(caught.value.__context__ or "")
    return caught.value


def test_user_and_password_of_the_url_are_sent_and_never_shown(stub: Callable[[Answer], str]) -> None:
    sent: list[str | None] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        sent.append(request.headers["Authorization"])
        return 401, b""

    host = stub(answer)
    assert "answered 401" in str(failure(f"http://ann:{ENCODED}@{host}"))
    assert "got none" in str(failure(f"http://{host}"))
    assert sent == [httpx.BasicAuth("ann", SECRET)._auth_header, None]


@pytest.mark.parametrize("url", ["localhost:8081", f"http://ann:{SECRET}@host", "ftp://ann:p4ss@host", "http://", ""])
def test_a_url_that_cant_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(RegistryError, match="expected a URL such as") as caught:
        Registry.at(url)
    assert "p4ss" not in str(caught.value)


def test_what_does_not_answer_is_unreachable(stub: Callable[[Answer], str]) -> None:
    assert isinstance(failure(f"http://ann:{ENCODED}@127.0.0.1:1"), Unreachable)
    assert isinstance(failure(f"http://{stub(lambda _: (503, b''))}"), Unreachable)


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b"<html>not here</html>"), (404, b'{"error_code": 404}'), (404, b"[]"), (200, b"<html>"), (200, b"[]")],
)
def test_another_service_is_no_registry_and_makes_no_id_missing(
    stub: Callable[[Answer], str], status: int, body: bytes
) -> None:
    error = failure(f"http://{stub(lambda _: (status, body))}")
    assert isinstance(error, RegistryError) and "expected a schema registry" in str(error)
