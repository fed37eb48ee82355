"""Whole histories of a query through the gateway's side of it: lost, repeated and swapped messages, slow clients."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query_model import ModelClient, ModelGateway, ModelStore
from tailrace.gateway.connection.wire import Framing
from tailrace.gateway.live.commands import CommandWriter
from tailrace.gateway.live.queries.registry import find_lost

PARTITIONS = 2
KEYS = [b"a", b"b", b"c", b"d", b"e"]

part = st.integers(0, PARTITIONS - 1)
key = st.sampled_from(KEYS)
some = st.integers(0, 3)
put = st.tuples(st.just("put"), part, key, st.sampled_from([True, True, False]))
wait = st.tuples(st.just("wait"), st.integers(1, 4))
deliver = st.tuples(st.just("deliver"), st.integers(1, 5))
faults = st.one_of(
    st.tuples(st.just("drop"), some),
    st.tuples(st.just("repeat"), some),
    st.tuples(st.just("swap"), some),
    st.tuples(st.sampled_from(["interrupt", "lose", "settle", "settle", "save", "roll_back"]), part),
    st.tuples(st.just("recovered")),
    st.tuples(st.just("tick"), part, key),
)
clients = st.one_of(
    st.tuples(st.sampled_from(["pause", "resume", "leave"]), some),
    st.tuples(st.just("come"), st.sampled_from(list(Framing))),
    st.tuples(st.just("back"), some, st.integers(0, 10)),
)
steps = st.lists(st.one_of(put, put, wait, deliver, faults, clients), min_size=25, max_size=80)


def name(partition: int, key: bytes) -> bytes:
    return b"%d%b" % (partition, key)


async def run(history: list[tuple[Any, ...]], *, clock: bool, most_held: int, most_recent: int, page: int) -> None:
    store = ModelStore(PARTITIONS, clock=clock, page=page)
    gateway = ModelGateway(store, most_held=most_held, most_recent=most_recent)
    clients: list[ModelClient] = [gateway.client(Framing.PLAIN), gateway.client(Framing.SOCKET)]
    for kind, *rest in history:
        client = clients[rest[0] % len(clients)] if clients and rest and isinstance(rest[0], int) else None
        if kind == "put":
            store.put(rest[0], name(rest[0], rest[1]), rest[2])
        elif kind == "tick":
            store.tick(rest[0], name(rest[0], rest[1]))
        elif kind == "deliver":
            gateway.deliver(rest[0])
        elif kind == "drop" and rest[0] < len(store.queue):
            del store.queue[rest[0]]
        elif kind == "repeat" and rest[0] < len(store.queue):
            store.queue.insert(rest[0], store.queue[rest[0]])
        elif kind == "swap" and rest[0] + 1 < len(store.queue):
            at: int = rest[0]
            store.queue[at], store.queue[at + 1] = store.queue[at + 1], store.queue[at]
        elif kind in ("interrupt", "lose", "settle", "save"):
            getattr(store, str(kind))(rest[0])
        elif kind == "roll_back":
            store.roll_back(rest[0])
            # A store that starts again has dropped the link.
            store.queue.clear()
            gateway.queries.recovered()
        elif kind == "recovered":
            gateway.queries.recovered()
        elif kind == "pause" and client is not None and not client.wire.paused:
            client.wire.pause_writing()
        elif kind == "resume" and client is not None and client.wire.paused:
            client.wire.resume_writing()
        elif kind == "come":
            clients.append(gateway.client(rest[0]))
        elif kind == "back" and client is not None and client.moments:
            # One that saw everything up to a position of some time ago, and was away since.
            position, held = client.moments[rest[1] % len(client.moments)]
            clients.append(gateway.client(client.wire.framing, position, held))
        elif kind == "leave" and client is not None and len(clients) > 1:
            client.close()
            clients.remove(client)
        elif kind == "wait":
            for _ in range(rest[0]):
                await asyncio.sleep(0)
    await quiet(gateway, clients)
    for client in clients:
        assert client.held == store.members() and client.subscription.live and client.faults == []
    # Whoever comes back with any position of this time gets what it has missed.
    backs = [
        gateway.client(client.wire.framing, position, held)
        for client in clients
        for position, held in client.moments[:: max(1, len(client.moments) // 6)]
    ]
    await quiet(gateway, backs)
    for back in backs:
        assert back.held == store.members() and back.subscription.live and back.faults == []
    for client in clients + backs:
        client.close()
    await asyncio.sleep(TIDY)
    gateway.queries._tend(float("inf"))
    assert len(gateway.queries) == 0 and not gateway.queries._parts
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*left, return_exceptions=True)


TIDY = 0.0


async def quiet(gateway: ModelGateway, clients: list[ModelClient]) -> None:
    """Everything is settled, everyone reads, and the sweep finds what was lost."""
    for number in range(PARTITIONS):
        gateway.store.settle(number)
    for client in clients:
        if client.wire.paused:
            client.wire.resume_writing()
    gateway.deliver()
    for _ in range(4000):
        await asyncio.sleep(0.0005)
        await find_lost(list(gateway.queries._parts.values()), gateway.queries.matches, 0.0)
        if all(client.ready for client in clients) and all(
            client.held == gateway.store.members() and client.subscription.live for client in clients
        ):
            return


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=steps,
    clock=st.booleans(),
    most_held=st.sampled_from([0, 2, 1000]),
    most_recent=st.sampled_from([500, 1500, 1_000_000]),
    page=st.sampled_from([1, 2, 100]),
)
def test_whatever_is_lost_late_or_slow_every_copy_is_what_matches_and_no_key_goes_back(
    history: list[tuple[Any, ...]], clock: bool, most_held: int, most_recent: int, page: int
) -> None:
    asyncio.run(run(history, clock=clock, most_held=most_held, most_recent=most_recent, page=page))


class SlowWriter:
    """Has each record when told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()

    async def put(self, key: str, value: bytes | None) -> None:  # noqa: ARG002
        self.asked.append(key)
        await self.answer.wait()

    async def close(self) -> None: ...


def test_who_comes_while_its_view_is_built_anew_follows_the_new_build() -> None:
    async def play() -> None:
        gateway, writer = ModelGateway(ModelStore(1, clock=False, page=3), most_held=9, most_recent=9), SlowWriter()
        gateway.queries._commands = CommandWriter(writer)
        client = gateway.client(Framing.SOCKET)
        while not writer.asked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        gateway.queries._known.views = {"v": replace(gateway.view, generation=2)}
        gateway.queries.rebuild({"v"})
        writer.answer.set()
        async with asyncio.timeout(5):
            while client.subscription.followed is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        (followed,) = gateway.queries.followed()
        assert client.subscription.followed is followed and followed.view.generation == 2
        client.close()
        await asyncio.sleep(0)

    asyncio.run(play())
