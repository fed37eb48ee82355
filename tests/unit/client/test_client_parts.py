"""The parts of the Python client that are not in the table of cases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailrace.client import Client, Event, Gone, Ready, Refused, Row, Subscription
from tailrace.client.connections import seconds_of
from tailrace.client.credentials import Credentials


class Nobody:
    """A client that only counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def leave(self, subscription: Subscription) -> None:
        assert subscription.ended
        self.asked.append("leave")

    def hold(self, subscription: Subscription) -> None:
        subscription.link.held = True
        self.asked.append("hold")

    def serve(self, subscription: Subscription) -> None:
        subscription.link.held = False
        self.asked.append("serve")


def event(number: int) -> dict[str, Any]:
    return {"type": "event", "event": number, "position": f"a0b1c2d3.1.0-{number}"}


@pytest.mark.parametrize("given", ["t", lambda: "t"])
def test_a_token_is_a_text_or_a_function(given: str | Callable[[], str]) -> None:
    assert asyncio.run(Credentials(given, None).ask()) == "t"


def test_a_token_may_have_to_be_waited_for_and_tickets_go_into_the_address() -> None:
    async def given() -> str:
        return "a&b"

    ticket: Callable[[], Awaitable[str]] = given
    credentials = Credentials(given, ticket)
    assert asyncio.run(credentials.ask()) == "a&b"
    assert asyncio.run(credentials.address("http://g/ws")) == "http://g/ws?ticket=a%26b"
    assert asyncio.run(credentials.address("http://g/e?key=1")) == "http://g/e?key=1&ticket=a%26b"


def test_a_token_that_was_refused_is_not_sent_again() -> None:
    tokens = ["old", "old", "new"]
    credentials = Credentials(lambda: tokens.pop(0), None)
    found = []
    for _ in range(3):
        asyncio.run(credentials.ask())
        found.append((credentials.stale, credentials.refused()))
    assert found == [(False, "again"), (True, "stop"), (False, "again")]
    credentials.accepted()
    assert credentials.refused() == "again", "it was good until now"


def test_without_another_token_a_refusal_is_the_end() -> None:
    credentials = Credentials("t", None)
    asyncio.run(credentials.ask())
    assert credentials.refused() == "stop"
    assert Credentials(None, lambda: "ticket").refused() == "again"


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), (None, 0.0), ("", 0.0), ("soon", 0.0), ("Mon, 01 Jan 2001 00:00:00 GMT", 0.0)]
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert seconds_of("Fri, 01 Jan 2100 00:00:00 GMT") > 1e9


def test_iterating_begins_with_what_is_held_and_ends_with_the_subscription() -> None:
    async def main() -> list[object]:
        subscription = Subscription({"view": "v", "keys": ["1", "2"]}, Nobody())
        subscription.begin("socket")
        for key in ("1", "2"):
            subscription.take({"type": "row", "key": key, "row": int(key)})
        subscription.take({"type": "ready"})
        found: list[object] = []
        async for change in subscription:
            found.append(change)
            if isinstance(change, Ready):
                # A slow reader: of each key the newest.
                for number in range(10):
                    subscription.take({"type": "row", "key": "1", "row": number})
                subscription.take({"type": "gone", "key": "2"})
                subscription.close()
        return found

    assert asyncio.run(main()) == [Row("1", 1), Row("2", 2), Ready(), Row("1", 9), Gone("2")]


def test_a_feed_is_held_at_a_thousand_events_and_served_again_at_half() -> None:
    async def main() -> tuple[list[str], list[int]]:
        client = Nobody()
        subscription = Subscription({"feed": "f", "client": "c"}, client)
        subscription.begin("socket")
        for number in range(1000):
            subscription.take(event(number))
        assert client.asked == ["hold"]
        found = []
        async for change in subscription:
            assert isinstance(change, Event)
            found.append(change.event)
            if len(found) == 1000:
                break
        return client.asked, found

    asked, found = asyncio.run(main())
    assert asked == ["hold", "serve"] and found == list(range(1000))


def test_a_feed_with_a_callback_holds_nothing() -> None:
    async def main() -> list[str]:
        client = Nobody()
        seen: list[object] = []
        subscription = Subscription({"feed": "f", "client": "c"}, client, on_change=seen.append)
        subscription.begin("socket")
        for number in range(3000):
            subscription.take(event(number))
        assert len(seen) == 3000
        return client.asked

    assert asyncio.run(main()) == []


def test_a_callback_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        def fail(_: object) -> None:
            raise RuntimeError("the program's own")

        subscription = Subscription({"view": "v"}, Nobody(), on_change=fail)
        subscription.begin("socket")
        subscription.take({"type": "row", "key": "1", "row": 1})
        subscription.take({"type": "ready", "position": "4be1a27c.1.0-17"})
        return len(subscription.rows)

    assert asyncio.run(main()) == 1 and "the program's own" in caplog.text


def test_what_can_not_be_followed_is_refused_at_once() -> None:
    async def main() -> None:
        with pytest.raises(Refused, match="expected the gateway's address"):
            Client("localhost:8080")
        async with Client("http://localhost:9") as client:
            with pytest.raises(Refused, match="at least one key"):
                client.follow("v", keys=[])
        with pytest.raises(Refused, match="closed"):
            client.follow("v")

    asyncio.run(main())


def test_a_client_that_is_closed_leaves_no_task_behind() -> None:
    async def main() -> set[asyncio.Task[Any]]:
        async with Client("http://127.0.0.1:9") as client:
            subscription = client.follow("v", keys=[1])
            await asyncio.sleep(0.05)
        assert subscription.status == "closed"
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()
