"""Whatever clients send to streams and on WebSockets, the gateway says what is wrong with it, and goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.shapes import CODES, message_problems, problem_problems
from gateway_process import GatewayProcess, Store, row
from socket_tap import BINARY, PING, PONG, TEXT, SocketTap
from tailrace.contracts.commands import commands_topic
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer
from tailrace.kafka.async_delivery import LARGEST
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import COMMANDS, Topics

HALF = "\ud800"  # half a surrogate pair: JSON can spell it, UTF-8 can't
JSON = {"Content-Type": "application/json"}
TYPES = ["application/json"] * 12 + ["application/json; charset=utf-16", "text/plain", "", "multipart/form-data"]

numbers = st.integers() | st.sampled_from([10**400, -(2**63), 2**63, 5, 60, 86_401]) | st.floats()
texts = st.text(max_size=20) | st.sampled_from(["", HALF, f"a{HALF}", "\0", "names", "x" * 70_000, "é" * 40_000, "😀"])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=6,
)
views = st.sampled_from(["names", "averages"])
keys = st.lists(texts, max_size=4)
queries = st.sampled_from(["true", "name = 'a'", "name = ", "movie_id > 1e400", "(" * 3_000, "now() > 1", "a" * 50_000])


def fields(**right: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these fields, most of them of the right kind, and others."""
    known = st.fixed_dictionaries({}, optional=right)
    wrong = st.dictionaries(st.sampled_from([*right, "other"]) | texts, values, max_size=2)
    return known | known | st.builds(lambda found, other: {**found, **other}, known, wrong)


def spelled(value: object) -> st.SearchStrategy[bytes]:
    """Some bytes that are the JSON of a value, or nearly."""
    text = json.dumps(value)
    raw = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
    twice = f'{{"view":"names","keys":7,{text[1:]}' if text.startswith("{") and len(text) > 2 else text * 2
    return st.sampled_from(
        [text.encode()] * 12 + [raw, twice.encode(), text[:-1].encode(), b"\xef\xbb\xbf" + raw, text.encode("utf-16")]
    )


news = fields(view=views | views | texts, keys=keys, ttl=st.integers(5, 60)) | fields(view=views, where=queries | texts)
changes = fields(add=keys, remove=keys)
odd = st.binary(max_size=50) | st.sampled_from([b"", b"[" * 100_000, b'{"ttl":' + b"9" * 5_000 + b"}", b"{" * 9])
bodies = (news | changes | values).flatmap(spelled) | odd
sent = st.builds(
    lambda kind, found: {**found, **({} if kind is None else {"type": kind})},
    st.sampled_from(["subscribe"] * 4 + ["unsubscribe", "auth", "ping", "dance", None]),
    fields(
        id=st.text(min_size=1, max_size=3),
        view=views,
        keys=keys,
        where=queries,
        feed=texts,
        client=texts,
        stream=texts,
        token=texts,
        position=texts | st.just("0123abcd.1.0-5.c7"),
        positions=st.dictionaries(texts, texts, max_size=3),
    ),
)


def keys_of(count: int) -> list[str]:
    return [f"k{number}" for number in range(count)]


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, broker: Broker, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that keeps streams. Its log is looked at when it ends."""
    app = store.catalog.app
    Topics(Brokers(broker.address)).create(commands_topic(app), partitions=1, replication=1, config=COMMANDS)
    process = GatewayProcess(tmp_path_factory.mktemp("gateway"), redis_server.url, app, {"kafka": broker.address})
    process.wait_ready()
    yield process
    process.close()


@pytest.fixture(scope="module")
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        yield client


def tries(count: int) -> settings:
    """So many examples; where one fails, it is shown as it is, because each takes its time."""
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    return settings(max_examples=count, deadline=None, phases=phases, suppress_health_check=list(HealthCheck))


def check(answer: httpx.Response) -> None:
    """An answer is what was asked for, or says what was wrong with the request."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert not problem_problems(answer.json()) and len(answer.content) < 100_000, answer.text[:1000]


@pytest.mark.parametrize(
    "body",
    [
        {"view": HALF},
        {"view": "names", "keys": ["a", f"b{HALF}"]},
        {"view": "names", "where": f"name = '{HALF}'"},
        {"view": "names", HALF: 1},
        {"view": "names", "keys": [1] * 9_000},
        {"view": "names", "keys": keys_of(10_001)},
        {"add": keys_of(10_001)},
        {"view": "names", "ttl": 10**400},
        {"view": "names", "ttl": float("nan")},
        {"view": "names", "ttl": 5.5},
        {"view": ["names"], "keys": {"a": []}},
        {"view": "x" * 70_000},
        {"add": [HALF], "remove": [None]},
        {"add": "names"},
        "[" * 100_000,
        '{"view":"names","ttl":' + "9" * 5_000 + "}",
        '{"view":"names","view":7}',
        b'{"view":"\xff"}',
        b"",
    ],
    ids=lambda body: ascii(body)[:40],
)
def test_a_body_that_no_stream_can_have_is_refused(http: httpx.Client, body: Any) -> None:
    stream = http.post("/streams", json={"view": "names", "keys": ["a"]}).json()["id"]
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    for method, path in (("POST", "/streams"), ("PATCH", f"/streams/{stream}")):
        answer = http.request(method, path, content=content, headers=JSON)
        assert 400 <= answer.status_code < 500, answer.text[:1000]
        check(answer)
    assert http.get(f"/streams/{stream}").json()["keys"] == ["a"]


def test_whatever_a_stream_is_opened_with_there_is_one_or_a_reason_why_not(
    http: httpx.Client, gateway: GatewayProcess, examples: int
) -> None:
    @tries(40 * examples)
    @given(news.flatmap(spelled) | bodies, st.sampled_from(TYPES))
    def opens(body: bytes, kind: str) -> None:
        answer = http.post("/streams", content=body, headers={"Content-Type": kind} if kind else {})
        check(answer)
        if answer.status_code == 201:
            found = answer.json()
            shown = http.get(f"/streams/{found['id']}").json()
            assert {**shown, "expires": 0} == {**found, "expires": 0}

    opens()
    assert http.get("/health/ready").status_code == 200 and "Traceback" not in gateway.log.read_text()


def test_whatever_a_stream_is_changed_and_begun_with_it_stays_one(
    http: httpx.Client, gateway: GatewayProcess, examples: int
) -> None:
    stream = http.post("/streams", json={"view": "names", "keys": ["a"], "ttl": 600}).json()["id"]

    @tries(40 * examples)
    @given(changes.flatmap(spelled) | bodies, st.sampled_from(TYPES), st.just(stream) | st.just(stream) | texts)
    def changes_it(body: bytes, kind: str, id: str) -> None:
        named = quote(id.encode(errors="surrogatepass")[:2000], safe="")
        headers = {"Content-Type": kind} if kind else {}
        check(http.request("PATCH", f"/streams/{named}", content=body, headers=headers))
        check(http.post(f"/streams/{named}/begin", content=body, headers=headers))
        if id != stream:
            check(http.request("DELETE", f"/streams/{named}", content=body, headers=headers))

    changes_it()
    shown = http.get(f"/streams/{stream}").json()
    assert shown["begun"] is True and len(set(shown["keys"])) == len(shown["keys"])
    assert "Traceback" not in gateway.log.read_text()


def test_a_stream_that_kafka_would_not_take_is_refused_and_those_of_others_are_not(http: httpx.Client) -> None:
    most = [f"{n:05}".ljust(LARGEST // 16, "x") for n in range(15)]
    answer = http.post("/streams", json={"view": "names", "keys": most})
    assert answer.status_code == 201, "nearly as much as Kafka takes"
    path = f"/streams/{answer.json()['id']}"
    for method, url, body in (
        ("PATCH", path, {"add": ["y" * (LARGEST // 16)]}),
        ("POST", "/streams", {"view": "names", "keys": [*most, "y" * (LARGEST // 16)]}),
    ):
        refused = http.request(method, url, json=body)
        assert refused.status_code == 413 and "stream too large" in refused.text
        check(refused)
    refused = http.post("/streams", json={"view": "names", "keys": ["k" * 70_000]})
    assert refused.status_code == 414
    assert http.get(path).json()["keys"] == most
    assert http.post("/streams", json={"view": "names", "keys": ["a"]}).status_code == 201


def said(tap: SocketTap) -> str | None:
    """What kind of message comes next; None where the connection has ended, as the protocol has it."""
    while (found := tap.frame()) is not None:
        if found[0] == PING:
            tap.send_frame(PONG, found[1])
        elif found[0] == TEXT:
            message = json.loads(found[1])
            assert not message_problems(message), message
            assert message["type"] != "error" or not problem_problems(message)
            kind: str = message["type"]
            return kind
    assert tap.code in CODES, tap.code
    return None


def test_whatever_a_client_says_on_a_web_socket_it_is_answered(
    gateway: GatewayProcess, store: Store, examples: int
) -> None:
    there = gateway.socket()
    there.subscribe("there", view="averages", keys=["1"])

    @tries(40 * examples)
    @given(st.lists(st.tuples(sent.flatmap(spelled) | bodies, st.sampled_from([TEXT] * 9 + [BINARY])), max_size=4))
    def says(messages: list[tuple[bytes, int]]) -> None:
        tap = SocketTap(gateway.port)
        for payload, opcode in messages:
            tap.send_frame(opcode, payload[:1_000_000])
        tap.send(type="ping", other=HALF)
        while said(tap) not in (None, "pong"):
            pass
        tap.close()

    says()
    store.put("averages", "1", 1, row(1))
    assert there.message()["row"] == {"version": 1}, "others go on"
    assert "Traceback" not in gateway.log.read_text()
