"""HTTPS and wss: what is served without TLS is served with it, and clients that misuse it are ended."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from attacking import RawClient, request
from gateway_process import GatewayProcess, Store, row
from running import eventually
from tailrace.client import Client, Row
from tailrace.dev.certificates import Authority
from tailrace.dev.redis_server import RedisServer
from tls_proxy import certificates

PART = "x" * 200_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The settings of a gateway with a certificate."""
    _, certificate, key = certificates(tmp_path_factory.mktemp("certificates"))
    return {"tls-cert": str(certificate), "tls-key": str(key)}


@pytest.fixture(scope="module")
def secure(
    redis_server: RedisServer, store: Store, files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway with a certificate, which waits for nobody for long. Its sweep is too rare to help a test."""
    directory = tmp_path_factory.mktemp("secure")
    timing = {"sweep": 3600.0, "request": 1.0, "slow": 1.0, "idle": 1.0}
    process = GatewayProcess(directory, redis_server.url, store.catalog.app, files, **timing)
    process.wait_ready()
    yield process
    process.close()


@pytest.fixture
def own(
    redis_server: RedisServer, store: Store, files: dict[str, str], tmp_path: Path
) -> Iterator[tuple[GatewayProcess, Path]]:
    """A gateway with a certificate of its own, and the directory of its files, which the test may change."""
    directory = tmp_path / "own"
    shutil.copytree(Path(files["tls-cert"]).parent, directory)
    named = {name: str(directory / Path(path).name) for name, path in files.items()}
    process = GatewayProcess(tmp_path, redis_server.url, store.catalog.app, named)
    process.wait_ready()
    yield process, directory
    process.close()


def test_rows_are_looked_up_and_followed_over_sse(secure: GatewayProcess, store: Store) -> None:
    store.put("averages", "1", 1, row(1))
    assert secure.get("/views/averages/1").json() == {"version": 1}
    tap = secure.follow("/views/averages/1/events")
    assert [frame.event for frame in tap.frames("ready")] == ["row", "ready"]
    for version in range(2, 30):
        store.put("averages", "1", version, row(version))
    while tap.frame().data != {"version": 29}:
        pass
    tap.comment()
    tap.close()


def test_rows_are_followed_over_a_web_socket(secure: GatewayProcess, store: Store) -> None:
    store.put("averages", "2", 1, row(1))
    socket = secure.socket()
    rows = socket.subscribe("a", view="averages", keys=["2"])
    assert rows[0]["row"] == {"version": 1}
    store.put("averages", "2", 2, row(2))
    assert socket.message()["row"] == {"version": 2}
    socket.close()


def test_browsers_are_told_to_ask_with_tls_from_now_on_but_not_for_a_developers_machine(
    secure: GatewayProcess, store: Store
) -> None:
    store.put("averages", "strict", 1, row(1))
    told = secure.get("/views/averages/strict", Host="gateway").headers
    assert told["strict-transport-security"] == "max-age=31536000"
    for host in ("localhost", f"127.0.0.1:{secure.port}"):
        assert "strict-transport-security" not in secure.get("/views/averages/strict", Host=host).headers


def test_a_row_of_many_records_arrives_whole(secure: GatewayProcess, store: Store) -> None:
    parts = "".join(chr(65 + n % 26) for n in range(3_000_000))
    store.put("averages", "3", 1, row(1, parts=parts))
    assert secure.get("/views/averages/3").json()["parts"] == parts
    tap = secure.follow("/views/averages/3/events")
    assert tap.frame().data["parts"] == parts
    tap.close()
    socket = secure.socket()
    assert socket.subscribe("a", view="averages", keys=["3"])[0]["row"]["parts"] == parts
    socket.close()


@pytest.mark.parametrize("transport", ["socket", "events"])
def test_the_python_client_trusts_an_authority_of_its_own(secure: GatewayProcess, store: Store, transport: str) -> None:
    store.put("averages", "4", 1, row(1))

    async def first(tls: ssl.SSLContext | None) -> object:
        refused = asyncio.Event()

        def heard(_: str, details: object) -> None:
            if "CERTIFICATE_VERIFY_FAILED" in str(details):
                refused.set()

        async with Client(secure.url, transport=transport, tls=tls, on_status=heard) as client:  # type: ignore[arg-type]
            followed = client.follow("averages", keys=[4], on_status=heard)
            if tls is None:
                await refused.wait()
                return None
            async for change in followed:
                return change
        return None

    assert secure.tls is not None
    assert asyncio.run(asyncio.wait_for(first(secure.tls), 30)) == Row("4", {"version": 1})
    assert asyncio.run(asyncio.wait_for(first(None), 30)) is None


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_tls_1_2_is_the_oldest_that_is_spoken(secure: GatewayProcess, files: dict[str, str]) -> None:
    def handshake(version: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=Path(files["tls-cert"]).with_name("ca.pem"))
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
        client = RawClient(secure.port, tls=context)
        try:
            return client.version
        finally:
            client.close()

    assert handshake(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert handshake(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        handshake(ssl.TLSVersion.TLSv1_1)


def test_whoever_forgets_tls_is_told(secure: GatewayProcess) -> None:
    client = RawClient(secure.port, request("GET", "/views/averages/1"))
    status, _, body = client.answer()
    assert status == 400 and body["expected"].startswith("HTTPS")
    assert client.rest() == b""


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_a_handshake_that_never_ends_is_ended(secure: GatewayProcess, first: bytes) -> None:
    before = secure.metric('tailrace_gateway_limited_total{limit="request-deadline"}')
    client = RawClient(secure.port, first)
    assert client.rest() == b""
    assert secure.metric('tailrace_gateway_limited_total{limit="request-deadline"}') == before + 1


def test_a_connection_without_a_request_is_closed_with_a_goodbye(secure: GatewayProcess) -> None:
    client = RawClient(secure.port, tls=secure.tls)
    # Without the goodbye the client's TLS raises an error: the end could be a cut by someone on the way.
    assert client.rest() == b""


def test_half_a_head_is_answered_and_ended(secure: GatewayProcess) -> None:
    client = RawClient(secure.port, b"GET /views/averages/1 HTTP/1.1\r\nX-Slow: ", tls=secure.tls)
    status, _, body = client.answer()
    assert (status, body["error"]) == (408, "request too slow")
    assert client.rest() == b""


@pytest.mark.parametrize("surface", ["sse", "ws"])
def test_a_client_that_does_not_read_is_cut_off_and_costs_others_nothing(
    secure: GatewayProcess, store: Store, surface: str
) -> None:
    key = f"slow-{surface}"
    store.put("averages", key, 1, row(1))
    sample = f'tailrace_gateway_closed_total{{reason="slow",surface="{surface}"}}'
    assert secure.metric(sample) == 0
    path = f"/views/averages/{key}/events"
    if surface == "ws":
        secure.socket(buffer=4096).send(type="subscribe", id="a", view="averages", keys=[key])
    else:
        secure.follow(path, buffer=4096)
    other = secure.follow(path)
    other.frames("ready")
    version = 1

    def cut_off() -> bool:
        nonlocal version
        version += 1
        store.put("averages", key, version, row(version, part=PART))
        while other.frame().data["version"] != version:
            pass
        return secure.metric(sample) == 1

    eventually(cut_off, "the slow client is cut off")
    other.close()


def test_a_client_that_was_slow_for_a_moment_gets_the_newest_row(secure: GatewayProcess, store: Store) -> None:
    store.put("averages", "moment", 1, row(1))
    path = "/views/averages/moment/events"
    slow, other = secure.follow(path, buffer=4096), secure.follow(path)
    for one in (slow, other):
        one.frames("ready")
    for version in range(2, 40):
        store.put("averages", "moment", version, row(version, part=PART))
    for one in (other, slow):
        while one.frame().data["version"] != 39:
            pass
    store.put("averages", "moment", 40, row(40))
    assert slow.frame().data == {"version": 40}
    for one in (slow, other):
        one.close()


def test_new_connections_get_the_new_certificate_and_open_ones_live_on(
    own: tuple[GatewayProcess, Path], store: Store
) -> None:
    gateway, directory = own
    store.put("averages", "rotated", 1, row(1))
    tap = gateway.follow("/views/averages/rotated/events")
    tap.frames("ready")
    first = RawClient(gateway.port, tls=gateway.tls).certificate
    issued = Authority.kept(directory).issue("another")
    (directory / "key.pem").write_text(issued.key)

    def problems() -> list[str]:
        found: list[str] = gateway.get("/health/ready").json()["certificate"]["problems"]
        return found

    eventually(lambda: any("--tls-key" in one for one in problems()), "health says that the key is another's")
    assert RawClient(gateway.port, tls=gateway.tls).certificate == first
    (directory / "certificate.pem").write_text(issued.certificate)
    eventually(lambda: problems() == [], "health says that all is well")
    assert RawClient(gateway.port, tls=gateway.tls).certificate == ssl.PEM_cert_to_DER_cert(issued.certificate)
    store.put("averages", "rotated", 2, row(2))
    assert tap.frame().data == {"version": 2}
    log = gateway.log.read_text()
    assert "certificate=kept" in log and "certificate=replaced" in log and "PRIVATE KEY" not in log


def test_a_drain_says_goodbye_to_streams(own: tuple[GatewayProcess, Path], store: Store) -> None:
    gateway, _ = own
    store.put("averages", "drained", 1, row(1))
    tap = gateway.follow("/views/averages/drained/events")
    tap.frames("ready")
    idle = RawClient(gateway.port, request("GET", "/health/live"), tls=gateway.tls)
    assert idle.answer()[0] == 200
    assert gateway.stop() == 0
    (last,) = tap.frames("close")
    assert (last.data["reason"], last.data["retry"]) == ("shutdown", True)
    assert list(tap.rest()) == [] and tap.ended
    assert idle.rest() == b""


def test_a_wrong_certificate_is_one_line_before_anything_is_served(
    redis_server: RedisServer, files: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text(Path(files["tls-cert"]).with_name("ca.pem").read_text())
    (tmp_path / "certificate.pem").write_text("none")
    with pytest.raises(AssertionError, match=r"SettingError: --tls-cert: expected a certificate as PEM"):
        GatewayProcess(tmp_path, redis_server.url, "none", files | {"tls-cert": str(tmp_path / "certificate.pem")})


def test_an_http_client_pools_its_connections(secure: GatewayProcess, store: Store) -> None:
    store.put("averages", "pool", 1, row(1))
    assert secure.tls is not None
    with httpx.Client(verify=secure.tls) as client:
        for _ in range(50):
            assert client.get(f"{secure.url}/views/averages/pool").json() == {"version": 1}
