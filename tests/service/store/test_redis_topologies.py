"""Every Redis serves: with a password, with rights, behind TLS, under Sentinels and as a Cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway_process import GatewayProcess, Store, row, view
from redis_topologies import Cluster, Watched
from tailrace.contracts.freshness import Report
from tailrace.declarations.app import App
from tailrace.dev.redis_server import RedisServer
from tailrace.operations.kafka_rights import GATEWAY, MATERIALIZER
from tailrace.operations.redis_rights import redis_rights
from tailrace.store.connection.outages import Unavailable
from tailrace.store.layout.keys import default_prefix
from tailrace.store.write.expiries import Expiries
from tailrace.store.write.reports import Reports
from tailrace.store.write.writer import StoreWriter
from tls_proxy import TlsProxy


def server(directory: Path, stack: ExitStack, *options: str) -> RedisServer:
    started = RedisServer(directory / "redis", options=options)
    stack.callback(started.stop)
    started.start()
    return started


def with_password(directory: Path, stack: ExitStack, app: str) -> str:
    url = server(directory, stack).url
    redis.Redis.from_url(url).config_set("requirepass", "p@ss/word")
    return url.replace("redis://", "redis://:p%40ss%2Fword@")


def give_rights(url: str, app: str, *, cluster: bool = False) -> None:
    """Give one user what a gateway and a materializer need: the test is both."""
    declared = App(app)
    declared.view("averages", declared.topic("ratings", value="n long"), key="n", columns={"ratings": "count(*)"})
    client: Any = redis.Redis.from_url(url)
    client.execute_command("ACL", "SETUSER", "tailrace", "on", ">secret")
    # What `tailrace dev` asks for, to show a first row.
    commands = {"+hrandfield"}
    for process in (MATERIALIZER, GATEWAY):
        rules = redis_rights(declared, process, cluster=cluster)
        commands |= {rule for rule in rules if rule.startswith("+")}
    client.execute_command("ACL", "SETUSER", "tailrace", *rules, *commands)


def with_rights(directory: Path, stack: ExitStack, app: str) -> str:
    url = server(directory, stack).url
    give_rights(url, app)
    return url.replace("redis://", "redis://tailrace:secret@")


def over_a_socket_file(directory: Path, stack: ExitStack, app: str) -> str:
    path = directory / "redis.sock"
    server(directory, stack, "--unixsocket", str(path))
    return f"unix://{path}?db=1"


def behind_tls(directory: Path, stack: ExitStack, app: str) -> str:
    proxy = TlsProxy(directory / "tls", server(directory, stack).port)
    stack.callback(proxy.stop)
    return proxy.url


def under_sentinels(directory: Path, stack: ExitStack, app: str) -> str:
    watched = Watched(directory)
    stack.callback(watched.stop)
    return watched.url


def under_sentinels_behind_tls(directory: Path, stack: ExitStack, app: str) -> str:
    watched = Watched(directory, tls=True)
    stack.callback(watched.stop)
    return watched.url


def as_cluster(directory: Path, stack: ExitStack, app: str) -> str:
    cluster = Cluster(directory)
    stack.callback(cluster.stop)
    for node in cluster.nodes:
        give_rights(node.url, app, cluster=True)
    return cluster.url.replace("redis+cluster://", "redis+cluster://tailrace:secret@")


def as_cluster_behind_tls(directory: Path, stack: ExitStack, app: str) -> str:
    cluster = Cluster(directory, tls=True)
    stack.callback(cluster.stop)
    return cluster.url


PLAIN = pytest.mark.campaign("the ordinary run has it behind TLS")
ALL = [
    with_password,
    with_rights,
    over_a_socket_file,
    behind_tls,
    pytest.param(under_sentinels, marks=PLAIN),
    under_sentinels_behind_tls,
    pytest.param(as_cluster, marks=PLAIN),
    as_cluster_behind_tls,
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("topology", ALL, ids=lambda one: one.__name__)
def test_rows_are_written_read_followed_and_handed_over(
    topology: Callable[[Path, ExitStack, str], str], tmp_path: Path, stack: ExitStack, fresh: str
) -> None:
    url = topology(tmp_path, stack, fresh)
    # Partitions enough for every node of a cluster.
    store = Store(url, fresh, view("averages", partitions=12), view("names", "name string", partitions=1))
    gateway = GatewayProcess(tmp_path, url, fresh, sweep=3600)
    stack.callback(gateway.close)
    store.publish_catalog()
    store.begin()
    gateway.wait_ready()
    keys = [str(n) for n in range(40)]
    for key in keys:
        store.put("averages", key, 1, row(1, key=key))
    for key in keys:
        assert gateway.get(f"/views/averages/{key}").json() == {"version": 1, "key": key}
    taps = [gateway.follow(f"/views/averages/{key}/events") for key in keys[:10]]
    for tap in taps:
        tap.frames("ready")
    for key in keys:
        store.put("averages", key, 2, row(2))
    for tap in taps:
        assert tap.frame().data == {"version": 2}

    lineage = store.catalog.lineage(store.catalog.views["averages"])
    places = [("averages", partition, lineage) for partition in range(12)]
    assert [found.offset for found in store.writer.stored(places)] == [store.offsets[p[:2]] for p in places]
    assert store.writer.newest("averages", store.partition("averages", "7"), [b"7"])[0] is not None
    assert store.writer.partitions("averages") == 12 and store.writer.some_key("averages", 0) is not None
    assert Expiries(store.writer).due("averages", 0, lineage, 0, 10) == []
    now = int(time.time() * 1000)
    Reports(store.writer).put("one", {"averages": Report(now, lineage, 1, now, 0.0, 5, {5: 2})}, now)
    assert [one.newest for one in Reports(store.writer).all()["averages"]] == [now]
    delay = gateway.get("/health/ready").json()["views"]["averages"]["delay"]
    assert delay == {"p50_ms": 5, "max_ms": 5, "rows": 2}
    store.replace(view("averages", partitions=12, generation=2), view("names", "name string", partitions=1))
    store.serve("averages")
    for tap in taps:
        assert tap.frames("ready")[0].data["reason"] == "rebuilt"


def test_without_its_rights_a_user_is_told_what_to_do(tmp_path: Path, stack: ExitStack, fresh: str) -> None:
    url = with_rights(tmp_path, stack, fresh)
    with pytest.raises(Unavailable) as caught:
        StoreWriter(url.replace("secret", "mistaken"), default_prefix(fresh)).ping()
    assert caught.value.code == "WRONGPASS" and "`tailrace acls`" in caught.value.remedy
    assert "mistaken" not in str(caught.value)
    with pytest.raises(Unavailable) as caught:
        StoreWriter(url, "another").put_catalog("app", b"{}")
    assert caught.value.code == "NOPERM"


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path, stack: ExitStack, fresh: str) -> None:
    url = behind_tls(tmp_path, stack, fresh)
    StoreWriter(url, "test").ping()
    with pytest.raises(Unavailable, match=r"(?i)certificate"):
        StoreWriter(url.partition("?")[0], "test").ping()


def test_nothing_is_asked_of_redis_before_it_is_used(fresh: str) -> None:
    for url in ("redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1,127.0.0.1:2/m", "redis+cluster://127.0.0.1:1"):
        writer = StoreWriter(url, fresh)
        with pytest.raises(Unavailable, match="can't be reached"):
            writer.ping()
