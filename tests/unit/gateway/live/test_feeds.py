"""Clients of a feed against a store whose answers come late and whose messages get lost: no gap without a word."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from feed_clients import Client, Errors, Link, offset_of
from feed_store_model import FeedStoreModel
from gateway_model import unpaced
from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogFeed, Column
from tailrace.gateway.catalog import ServedCatalog
from tailrace.gateway.live import feeds
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.feeds.registry import FeedRegistry
from tailrace.gateway.live.feeds.subscription import FeedSubscription
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.timing import Timing
from tailrace.store.layout.feed_keys import FeedPlace

# What becomes of messages, and of calls to the store.
fates = st.lists(st.sampled_from(["arrives", "arrives", "is lost"]), max_size=7)
answers = st.sampled_from(["answers", "answers", "answers", "takes up", "fails"])
CHANNEL = b"channel"
LIMIT = 60


class FeedSteps(RuleBasedStateMachine):
    """Random steps on one client of a feed that listens over several connections."""

    @initialize(retain=st.sampled_from(["listening", "always"]), live=st.integers(0, 2))
    def declare(self, retain: str, live: int) -> None:
        feed = CatalogFeed(
            "f", "f", "id", 1, 1, (Column("c", "string"),), (), {}, retain=retain, length=4, ordered=True
        )
        self.runner = asyncio.Runner()
        self.errors = Errors()
        logging.getLogger("tailrace").addHandler(self.errors)
        self.model = FeedStoreModel(feed)
        self.clients: list[tuple[Client, FeedSubscription]] = []
        self.positions: list[str] = []
        # Whether nothing was lost: then everyone has everything without a check of registrations.
        self.sound = True
        self.runner.run(self.begin(feed))
        for _ in range(live):
            self.connect(0, False, None)
        self.quiet()

    async def begin(self, feed: CatalogFeed) -> None:
        known = ServedCatalog()
        known.load({APP_RECORD: Catalog("app", {}, {"f": feed}).encode()})
        self.known, self.link = known, Link()
        timing = Timing(poll=0.0, patience=0.0)

        def channel(place: FeedPlace, client: bytes) -> bytes:
            return CHANNEL

        metrics = Metrics(known)
        self.channels = ChannelRegistry(self.link, metrics)
        self.feeds = FeedRegistry(self.channels, self.model, channel, unpaced(metrics), known, metrics, timing, LIMIT)

    def settle(self) -> None:
        async def ticks() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.runner.run(ticks())

    @rule(events=st.lists(st.booleans(), min_size=1, max_size=7), fates=fates)
    def write(self, events: list[bool], fates: list[str]) -> None:
        for event in events:
            self.model.write(event=event)
        self.messages_arrive(fates)

    @rule(fates=fates, slow=st.sampled_from([None, None, 0, 1]))
    def messages_arrive(self, fates: list[str], slow: int | None = None) -> None:
        """The first messages that are under way arrive, in order, or get lost; then a client may be found slow."""
        found = self.model.under_way[: len(fates)]
        del self.model.under_way[: len(fates)]
        self.sound = self.sound and "is lost" not in fates[: len(found)]

        async def arrive() -> None:
            for message, fate in zip(found, fates, strict=False):
                if fate == "arrives":
                    self.channels.deliver(CHANNEL, message)
            # In the same tick: what was passed on is not written yet.
            if slow is not None and slow < len(self.clients) and not self.clients[slow][0].wire.paused:
                self.clients[slow][0].wire.pause_writing()

        self.runner.run(arrive())
        self.settle()

    @rule()
    def events_are_published_again(self) -> None:
        self.model.publish_again()

    @rule(length=st.integers(0, 3))
    def the_history_is_cut(self, length: int) -> None:
        self.model.trim(length)

    @rule()
    def the_registration_lapses(self) -> None:
        self.model.lapse()
        self.sound = False

    @precondition(lambda self: self.model.calls)
    @rule(steps=st.lists(st.tuples(st.integers(0, 5), answers), min_size=1, max_size=6))
    def the_store_works(self, steps: list[tuple[int, str]]) -> None:
        for which, how in steps:
            if self.model.calls:
                self.runner.run(self._work(which, how))
                self.settle()

    async def _work(self, which: int, how: str) -> None:
        call = self.model.calls[which % len(self.model.calls)]
        self.sound = self.sound and how != "fails"
        {"takes up": call.take_up, "answers": call.answer, "fails": call.fail}[how]()

    @precondition(lambda self: len(self.clients) < 4)
    @rule(old=st.integers(0, 30), known=st.booleans(), room=st.sampled_from([None, 1, 2, 3]))
    def connect(self, old: int, known: bool, room: int | None) -> None:
        position = self.positions[old % len(self.positions)] if known and self.positions else None

        async def start() -> None:
            base = offset_of(position) if position is not None else None
            client = Client(self.model, position, base, room=room)
            subscription = FeedSubscription(self.feeds, client.wire, None, "f", b"c", position)
            client.wire.stream = subscription
            self.clients.append((client, subscription))
            subscription.start()

        self.runner.run(start())
        self.settle()

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 3), room=st.sampled_from([None, None, 1, 2]))
    def read_or_not(self, which: int, room: int | None) -> None:
        client, _ = self.clients[which % len(self.clients)]

        async def turn() -> None:
            if client.wire.paused:
                client.wire.resume_writing()
                client.room = room
            else:
                client.wire.pause_writing()

        self.runner.run(turn())
        self.settle()

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 3))
    def disconnect(self, which: int) -> None:
        self.every_event_comes_once_and_in_order_or_the_client_is_told()
        client, subscription = self.clients.pop(which % len(self.clients))
        if client.last is not None:
            self.positions.append(client.last)

        async def gone() -> None:
            client.wire.lose()
            subscription.close()

        self.runner.run(gone())
        self.settle()

    @rule()
    def registrations_are_checked(self) -> None:
        async def check() -> None:
            for followed in tuple(self.feeds._followed.values()):
                self.feeds._spawn(self.feeds._checked(followed))

        self.runner.run(check())
        self.settle()

    @invariant()
    def every_event_comes_once_and_in_order_or_the_client_is_told(self) -> None:
        for client, _ in getattr(self, "clients", []):
            if client.broken:
                raise client.broken[0]
        assert not hasattr(self, "errors") or not self.errors.found, self.errors.found

    @invariant()
    def who_is_slow_is_ended_and_costs_nothing(self) -> None:
        for client, subscription in list(getattr(self, "clients", [])):
            if client.wire.closed.done():
                assert client.wire.ending is not None and client.wire.ending.reason == "slow"
                assert subscription.owed > LIMIT
                self.clients.remove((client, subscription))
                if client.last is not None:
                    self.positions.append(client.last)
                self.runner.run(self._close(subscription))

    async def _close(self, subscription: FeedSubscription) -> None:
        subscription.close()

    def quiet(self) -> None:
        """Everything arrives that is under way, everyone reads, and registrations are checked where that must help."""
        for checked in (False, True):
            if checked and self.sound:
                break
            if checked:
                self.registrations_are_checked()
                self.sound = True
            while self.model.calls or self.model.under_way or any(one.wire.paused for one, _ in self.clients):
                self.runner.run(self._read())
                self.the_store_works([(0, "answers")])
                self.messages_arrive(["arrives"] * len(self.model.under_way))

    async def _read(self) -> None:
        for client, _ in self.clients:
            client.room = None
            if client.wire.paused:
                client.wire.resume_writing()

    @rule()
    def at_quiet_everyone_has_everything(self) -> None:
        self.quiet()
        self.every_event_comes_once_and_in_order_or_the_client_is_told()
        for client, subscription in self.clients:
            assert client.ready, client.frames
            assert subscription.followed is not None and subscription.followed.has(subscription)
            if self.model.kept:
                assert client.base is not None and client.base >= self.model.kept[-1].offset, "the last one is there"
            if client.seen:
                owed = [n for n in self.model.written if n >= client.seen[0]]
                assert client.seen == [n for n in owed if n <= client.seen[-1]], "no event is left out"
        assert len(self.feeds._followed) == bool(self.clients) == len(self.link.wanted)

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        logging.getLogger("tailrace").removeHandler(self.errors)
        self.at_quiet_everyone_has_everything()
        for _ in range(len(self.clients)):
            self.disconnect(0)
        while self.model.calls:
            self.the_store_works([(0, "answers")])
        assert not self.model.registered or not self.model.left, "the last connection ends the registration"
        assert not self.feeds._tasks and not self.feeds._repairs and not self.feeds._followed and not self.link.wanted
        self.runner.close()


def test_every_event_comes_once_and_in_order_or_the_client_is_told(
    monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    monkeypatch.setattr(feeds.watched, "FIRST_PAGE", 2)
    monkeypatch.setattr(feeds.subscription, "FIRST_PAGE", 2)
    monkeypatch.setattr(feeds.subscription, "_WRITE", 1)
    run_state_machine_as_test(
        FeedSteps,
        settings=settings(
            max_examples=40 * examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_who_is_sent_what_is_kept_is_told_when_it_is_cut_before_all_of_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds.subscription, "_WRITE", 1)
    steps = FeedSteps()
    steps.declare(retain="always", live=0)
    steps.write([True, True, True], [])
    steps.connect(0, False, 1)
    steps.the_store_works([(0, "answers"), (0, "answers")])
    (client, _) = steps.clients[0]
    assert client.frames == ["event"] and client.wire.paused
    steps.the_history_is_cut(1)
    steps.quiet()
    assert client.frames == ["event", "reset", "event", "ready"] and client.seen == [2]
    steps.teardown()


def test_who_is_found_slow_before_a_tick_is_written_gets_that_tick_later() -> None:
    steps = FeedSteps()
    steps.declare(retain="listening", live=2)
    steps.write([True, True], [])
    steps.messages_arrive(["arrives", "arrives"], slow=0)
    steps.quiet()
    assert [client.seen for client, _ in steps.clients] == [[0, 1], [0, 1]]
    steps.teardown()


def test_what_is_heard_while_a_gap_is_read_is_read_next() -> None:
    steps = FeedSteps()
    steps.declare(retain="listening", live=1)
    steps.write([True, True], ["is lost", "arrives"])
    steps.the_store_works([(0, "takes up")])
    steps.write([True], ["arrives"])
    # Nothing but the message itself may help.
    steps.sound = True
    steps.quiet()
    assert steps.clients[0][0].seen == [0, 1, 2]
    steps.teardown()


def test_what_is_heard_while_a_client_comes_in_is_read_at_once() -> None:
    steps = FeedSteps()
    steps.declare(retain="listening", live=0)
    steps.connect(0, False, None)
    steps.the_store_works([(0, "answers"), (0, "takes up")])
    steps.write([True], ["arrives"])
    steps.quiet()
    assert steps.clients[0][0].seen == [0]
    steps.teardown()
