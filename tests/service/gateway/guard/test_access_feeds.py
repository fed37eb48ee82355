"""Rights over feeds, through a real gateway and Redis: who follows which client, until when, and what others learn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from access_tokens import Socket, bearer, settings, token
from feed_serving import FEED, FeedStore, begun
from gateway_process import GatewayProcess
from running import PATIENCE, eventually
from tailrace.dev.redis_server import RedisServer

OWN = {"feeds": {FEED: ["clients/{sub}", "teams/{teams}"]}}


@pytest.fixture(scope="module")
def store(redis_server: RedisServer) -> FeedStore:
    return begun(FeedStore(redis_server.url, "test-gateway-access-feeds", length=4))


@pytest.fixture(scope="module")
def gateway(
    redis_server: RedisServer, store: FeedStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("gateway")
    given = settings(directory, open="metrics")
    process = GatewayProcess(directory, redis_server.url, store.app, given, lease=3600, sweep=3600)
    process.wait_ready()
    yield process
    process.close()


def path(client: str, feed: str = FEED) -> str:
    return f"/feeds/{feed}/{quote(client, safe='')}/events"


def test_a_client_follows_its_own_feed_on_every_surface_and_resumes(gateway: GatewayProcess, store: FeedStore) -> None:
    own = bearer(token("c7", rights=OWN, teams=["blue", "red"]))
    tap = gateway.follow(path("clients/c7"), headers=own)
    position = tap.frame().id
    assert position is not None
    made = httpx.post(f"{gateway.url}/tickets", headers=own, timeout=30).json()["ticket"]
    ticket = gateway.follow(f"{path('teams/red')}?ticket={made}")
    assert ticket.frame().event == "ready"
    socket = Socket(gateway.port)
    socket.say("auth", token=token("c7", rights=OWN))
    socket.say("subscribe", id="own", feed=FEED, client="clients/c7")
    socket.hear("ready")
    store.put("clients/c7", "one")
    store.put("teams/red", "two")
    assert tap.frame().data == {"text": "one"} and ticket.frame().data == {"text": "two"}
    assert socket.hear()["event"] == {"text": "one"}
    socket.close()
    again = gateway.follow(path("clients/c7"), headers={**own, "Last-Event-ID": position})
    assert [frame.event for frame in again.frames("ready")] == ["event", "ready"]
    for one in (tap, ticket, again):
        one.close()


def test_the_feed_of_another_client_is_refused_and_nothing_of_it_is_learnt(
    gateway: GatewayProcess, store: FeedStore
) -> None:
    offset = store.put("clients/c8", "secret")
    own = bearer(token("c7", rights=OWN))
    listening = store.listening()
    for client in ("clients/c8", "clients/c70", "clients/", "clients/*", "teams/red", "clients/c7/../c8"):
        asked = {**own, "Last-Event-ID": store.position(offset - 1)}
        answers = [gateway.get(path(client, feed), **asked) for feed in (FEED, "nothing")]
        assert [found.status_code for found in answers] == [403, 403]
        assert answers[0].text.replace(FEED, "nothing") == answers[1].text and "secret" not in answers[0].text
    socket = Socket(gateway.port, **own)
    for feed in (FEED, "nothing"):
        socket.say("subscribe", id="a", feed=feed, client="clients/c8", position=store.position(offset - 1))
        error = socket.hear()
        assert (error["type"], error["id"], error["error"], error["retry"]) == ("error", "a", "not allowed", False)
    socket.say("ping")
    assert socket.hear() == {"type": "pong"}
    socket.close()
    assert store.listening() == listening, "who is refused is not registered"
    some = bearer(token("c7", rights={"feeds": {"later-*": True}}))
    found = gateway.get(path("c7", "later-1"), **some)
    assert (found.status_code, found.json()["expected"]) == (404, [])


def test_a_feed_ends_with_its_token_or_with_a_revocation_and_is_asked_for_anew(
    gateway: GatewayProcess, store: FeedStore, redis_server: RedisServer
) -> None:
    long, short = token("r1", rights=OWN, jti="feed-1"), token("r2", rights=OWN, lasts=2)
    taps = [gateway.follow(path(f"clients/{sub}"), headers=bearer(held)) for sub, held in (("r1", long), ("r2", short))]
    positions = [tap.frame().id for tap in taps]
    socket = Socket(gateway.port, **bearer(long))
    socket.say("subscribe", id="own", feed=FEED, client="clients/r1")
    socket.hear("ready")
    command = [sys.executable, "-m", "tailrace", "revoke", store.app, "--redis", redis_server.url, "--jti", "feed-1"]
    subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    for tap in taps:
        assert tap.frame().data["reason"] == "unauthorized" and list(tap.rest()) == []
    assert socket.code() == 4401
    eventually(lambda: gateway.metric("tailrace_gateway_feed_listeners") == 0, "nobody listens")
    for sub, held, position in (("r1", long, positions[0]), ("r2", short, positions[1])):
        store.put(f"clients/{sub}", "missed")
        asked = {"Last-Event-ID": str(position)}
        assert gateway.get(path(f"clients/{sub}"), **bearer(held), **asked).status_code == 401
        other = bearer(token(sub, rights={"feeds": {FEED: ["elsewhere/{sub}"]}}))
        assert gateway.get(path(f"clients/{sub}"), **other, **asked).status_code == 403
        renewed = gateway.follow(path(f"clients/{sub}"), headers={**bearer(token(sub, rights=OWN, iat=2e9)), **asked})
        assert renewed.status == 401, "a token of the future is not believed"
        renewed = gateway.follow(path(f"clients/{sub}"), headers={**bearer(token(sub, rights=OWN)), **asked})
        assert [frame.event for frame in renewed.frames("ready")] == ["event", "ready"]


def test_another_token_on_a_socket_ends_the_feeds_that_it_does_not_allow(
    gateway: GatewayProcess, store: FeedStore
) -> None:
    socket = Socket(gateway.port)
    socket.say("auth", token=token("c9", rights=OWN, teams=["green"]))
    for id, client in (("own", "clients/c9"), ("team", "teams/green")):
        socket.say("subscribe", id=id, feed=FEED, client=client)
        socket.hear("ready")
    socket.say("auth", token=token("c9", rights=OWN))
    error = socket.hear("error")
    assert (error["id"], error["error"], error["retry"]) == ("team", "not allowed", False)
    assert socket.hear()["type"] == "authenticated"
    store.put("teams/green", "no longer")
    store.put("clients/c9", "still")
    assert socket.hear()["event"] == {"text": "still"}
    socket.close()
