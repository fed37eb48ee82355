"""In a real browser: its own EventSource, and tailrace.js over its own WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from access_tokens import settings, token
from chromium import Browser, Tab
from conformance.world import VIEW, World, world
from gateway_process import GatewayProcess, Store, row, view
from running import eventually
from tailrace.dev.redis_server import RedisServer

# Keeps what the browser's EventSource says, in `seen`.
EVENT_SOURCE = """
(() => {
  globalThis.seen = [];
  const source = (globalThis.source = new EventSource(PATH));
  for (const type of ["row", "gone", "ready", "reset", "close"])
    source.addEventListener(type, ({ data, lastEventId }) => seen.push([type, JSON.parse(data), lastEventId]));
  source.onerror = () => seen.push(["error"]);
})()
"""

# Follows with tailrace.js as the gateway serves it, and keeps what it says, in `seen`.
TAILRACE = """
(async () => {
  const { connect } = await import("/tailrace.js");
  globalThis.seen = [];
  globalThis.client = connect("/", OPTIONS);
  globalThis.followed = client.follow(VIEW, {
    keys: KEYS,
    onrow: (row, key) => seen.push(["row", key, row]),
    ongone: (key) => seen.push(["gone", key]),
    onready: () => seen.push(["ready"]),
    onreset: (reason) => seen.push(["reset", reason]),
    onstatus: (status) => seen.push(["status", status]),
  });
  await followed.ready();
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of all tests."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def here(browser: Browser, tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[World]:
    """A gateway with the view of averages, at an address that stays."""
    with world(tmp_path_factory.mktemp("world"), redis_server, "conformance-browser") as made:
        yield made


@pytest.fixture
def tab(browser: Browser, here: World) -> Iterator[Tab]:
    """A page of the gateway's origin, as another server there could serve it: its policy forbids nothing."""
    here.network.mend()
    tab = browser.tab(f"{here.url}/health/live", free=True)
    yield tab
    tab.close()


def follow(tab: Tab, keys: list[str], options: str = "{}") -> None:
    tab.run(TAILRACE.replace("VIEW", repr(VIEW)).replace("KEYS", repr(keys)).replace("OPTIONS", options))


def changes(tab: Tab) -> list[Any]:
    found: list[Any] = tab.run("seen.filter(([type]) => type !== 'status')")
    return found


def rows(tab: Tab) -> Any:
    return tab.run("Object.fromEntries(followed.rows)")


@pytest.mark.parametrize("end", ["killed", "shut down"])
def test_event_source_goes_on_by_itself_where_it_was(here: World, tab: Tab, end: str) -> None:
    (key,) = here.keys(1)
    first = here.put(key, 8.5)
    tab.run(EVENT_SOURCE.replace("PATH", repr(f"/views/{VIEW}/{key}/events")))
    tab.wait("seen.length === 2", "the snapshot")
    assert [(type, data.get("rating")) for type, data, _ in tab.run("seen")] == [("row", 8.5), ("ready", None)]
    second = here.put(key, 9.0)
    tab.wait("seen.length === 3", "the update")
    tab.run("seen.length = 0")
    (here.kill_gateway if end == "killed" else here.stop_gateway)()
    third = here.put(key, 1.0)
    here.start_gateway()
    tab.wait("seen.some(([type]) => type === 'ready')", "it has connected again")
    found = tab.run("seen")
    ends = [data["reason"] for type, data, *_ in (one for one in found if one[0] == "close")]
    assert ends == (["shutdown"] if end == "shut down" else [])
    frames = [(type, data) for type, data, *_ in (one for one in found if one[0] not in ("error", "close"))]
    assert frames[0] == ("row", third) and [type for type, _ in frames] == ["row", "ready"]
    assert first != second != third
    tab.run("source.close()")


def test_a_page_holds_what_the_view_holds_also_after_the_gateway_was_killed(here: World, tab: Tab) -> None:
    key, other = here.keys(2)
    first = here.put(key, 1.0)
    follow(tab, [key, other])
    assert changes(tab) == [["row", key, first], ["ready"]] and rows(tab) == {key: first}
    second = here.put(other, 2.0)
    tab.wait("seen.at(-1)[0] === 'row' && followed.rows.size === 2", "the update")
    tab.run("seen.length = 0")
    here.kill_gateway()
    here.remove(key)
    here.start_gateway()
    tab.wait("seen.some(([type]) => type === 'ready')", "it has connected again")
    assert changes(tab) == [["gone", key], ["ready"]] and rows(tab) == {other: second}
    assert tab.run("client.status") == "live"
    tab.run("client.close()")


def test_a_page_tries_at_once_when_it_is_online_again(here: World, tab: Tab) -> None:
    (key,) = here.keys(1)
    here.put(key, 1.0)
    # It would wait for an hour.
    follow(tab, [key], "{ transport: 'socket', random: () => 1, timing: { first: 3600000, longest: 3600000 } }")
    tab.online(False)
    here.network.cut()
    tab.wait("client.status === 'waiting'", "it has found out")
    second = here.put(key, 2.0)
    tab.run("seen.length = 0")
    tab.online(True)
    tab.wait("seen.some(([type]) => type === 'ready')", "it has connected again")
    assert changes(tab) == [["row", key, second], ["ready"]]
    tab.run("client.close()")


def test_a_page_takes_events_where_a_socket_does_not_get_through(here: World, tab: Tab) -> None:
    key, other = here.keys(2)
    first = here.put(key, 1.0)
    here.network.refuse_sockets()
    follow(tab, [key, other])
    assert rows(tab) == {key: first} and here.network.sockets_refused == 1
    second = here.put(other, 2.0)
    tab.wait("followed.rows.size === 2", "the update")
    assert rows(tab) == {key: first, other: second}
    tab.run("client.close()")


def test_two_tabs_are_told_the_same_and_a_closed_one_leaves_nothing(here: World, tab: Tab, browser: Browser) -> None:
    (key,) = here.keys(1)
    here.put(key, 1.0)
    before = here.connections()
    second = browser.tab(f"{here.url}/health/live", free=True)
    for one in (tab, second):
        follow(one, [key])
    assert here.connections() == before + 2
    row = here.put(key, 2.0)
    for one in (tab, second):
        one.wait("followed.rows.values().next().value.rating === 2", "the update")
        assert changes(one)[-1] == ["row", key, row]
    second.close()
    eventually(lambda: here.connections() == before + 1, "the gateway has noticed")
    tab.run("client.close()")
    eventually(lambda: here.connections() == before, "the gateway has noticed")


# Opens an operation in Swagger UI, and does what a reader does who tries it out.
TRY = """
(async () => {
  const found = (what, left = 1500) => new Promise((done, failed) => {
    const look = () => (what() ? done(what()) : left-- ? setTimeout(look, 20) : failed(new Error(`never: ${what}`)));
    look();
  });
  const block = await found(() => document.querySelector(`[data-path="PATH"]`)?.closest(".opblock"));
  block.querySelector(".opblock-summary-control").click();
  (await found(() => block.querySelector(".try-out__btn"))).click();
  const input = await found(() => block.querySelector("tr[data-param-name=key] input:enabled"));
  // As a reader writes and goes on: the field tells nobody what it holds until it is left.
  input.focus();
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, "KEY");
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.blur();
  (await found(() => block.querySelector(".execute"))).click();
  const answer = await found(() => block.querySelector(".live-responses-table tbody .response"));
  const body = await found(() => answer.querySelector(".response-col_description pre"));
  return [answer.querySelector(".response-col_status").innerText, JSON.parse(body.innerText)];
})()
"""


def test_the_page_of_the_documentation_tries_a_lookup_out_and_breaks_no_rule_of_its_policy(
    here: World, browser: Browser
) -> None:
    (key,) = here.keys(1)
    row = here.put(key, 8.5)
    here.network.mend()
    tab = browser.tab(f"{here.url}/docs")
    status, body = tab.run(TRY.replace("PATH", f"/views/{VIEW}/{{key}}").replace("KEY", key))
    assert (status.split()[0], body) == ("200", row)
    assert tab.logged() == []
    # The policy is there: it forbids what somebody could have made the page hold.
    tab.run("document.body.append(Object.assign(document.createElement('script'), { text: 'globalThis.bad = 1' }))")
    assert tab.run("globalThis.bad === undefined") is True
    assert len(tab.logged()) == 1 and "script-src 'self'" in tab.logged()[0]
    tab.close()


def test_the_page_of_the_documentation_has_a_place_for_a_token_and_sends_it(
    browser: Browser, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(redis_server.url, "conformance-browser-access", view(VIEW))
    store.publish_catalog()
    store.begin()
    store.put(VIEW, "7", 1, row(1, movie_id=7))
    directory = tmp_path_factory.mktemp("gateway")
    gateway = GatewayProcess(directory, redis_server.url, store.app, settings(directory))
    gateway.wait_ready()
    tab = browser.tab(f"{gateway.url}/docs")
    tab.wait("document.querySelector('.btn.authorize') !== null", "there is a button for a token")
    tab.run(f"ui.preauthorizeApiKey('bearer', {token()!r})")
    asked = "{pathName: '/views/{view}/{key}', method: 'get', parameters: {view: 'averages', key: '7'}}"
    told = "ui.getSystem().fn.execute({spec: ui.specSelectors.specJson().toJS(), securities: SECURITIES, ...ASKED})"
    held = "{authorized: ui.authSelectors.authorized().toJS()}"
    found = f"{told.replace('SECURITIES', held).replace('ASKED', asked)}.then(({{status, body}}) => [status, body])"
    assert tab.run(found) == [200, {"version": 1, "movie_id": 7}]
    assert tab.logged() == []
    tab.close()
    gateway.close()
