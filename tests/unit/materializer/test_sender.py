"""Batches are sent one poll after the other, whoever sends them, and answers are taken in their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tailrace.contracts.catalog import CatalogView, Column
from tailrace.materializer.poison_search import Doubts
from tailrace.materializer.sender import Sender
from tailrace.materializer.views.partition import ViewPartition
from tailrace.store.connection.outages import Unavailable


@dataclass(frozen=True)
class Batch:
    held: ViewPartition
    name: str


class Wire:
    """What was written and answered, in order; `open` lets the thread go on."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.seen: list[str] = []

    def write(self, batches: Sequence[Batch]) -> list[str]:
        assert self.open.wait(30)
        self.seen += [f"write {one.name}" for one in batches]
        return [one.name for one in batches]

    def settle(self, one: Batch, answer: str) -> None:
        assert one.name == answer
        self.seen.append(f"settle {answer}")

    def fail(self, batches: Sequence[Batch]) -> list[str]:
        raise Unavailable("AWAY", "it does not answer", "Wait.", f"{len(batches)} batches")


def batch(name: str) -> Batch:
    entry = CatalogView("v", name, "id", 1, 1, (Column("k", "string"),), (), {})
    return Batch(ViewPartition(entry, 0, "0123abcd", 7, 10, 1), name)


def answered(sender: Sender, one: Batch, wire: Wire, *, wait: bool) -> None:
    """Send a batch that fails, and take in that it did."""
    sender.send([one], wire.fail, wire.settle, wait=wait)
    sender.finish()


@pytest.fixture
def doubts() -> Doubts:
    return Doubts()


@pytest.fixture
def sender(doubts: Doubts) -> Iterator[Sender]:
    sender = Sender(doubts)
    yield sender
    sender.close()


def test_what_must_not_wait_for_others_comes_after_all_that_is_under_way(sender: Sender) -> None:
    wire = Wire()
    sender.send([batch("view")], wire.write, wire.settle, wait=False)
    sender.send([batch("feed")], wire.write, wire.settle, wait=False)
    assert sender.under_way and wire.seen == []
    wire.open.set()
    sender.send([batch("alone")], wire.write, wire.settle, wait=True)
    assert [one for one in wire.seen if one.startswith("settle")] == ["settle view", "settle feed", "settle alone"]
    assert wire.seen.index("settle feed") < wire.seen.index("write alone")
    assert not sender.under_way


def test_nothing_to_send_waits_for_what_is_under_way_all_the_same(sender: Sender) -> None:
    wire = Wire()
    sender.send([batch("view")], wire.write, wire.settle, wait=False)
    wire.open.set()
    sender.send([], wire.write, wire.settle, wait=True)
    assert wire.seen == ["write view", "settle view"] and not sender.under_way


def test_answers_that_are_dropped_settle_nothing(sender: Sender) -> None:
    wire = Wire()
    wire.open.set()
    sender.send([batch("view")], wire.write, wire.settle, wait=False)
    sender.send([batch("feed")], wire.fail, wire.settle, wait=False)
    sender.drop()
    assert wire.seen == ["write view"] and not sender.under_way


def test_a_redis_that_hangs_up_makes_the_partitions_of_its_batches_doubtful(sender: Sender, doubts: Doubts) -> None:
    wire, poisoned = Wire(), batch("poisoned")
    for wait in (True, False, True):
        assert not doubts.about(poisoned.held.partition)
        with pytest.raises(Unavailable):
            answered(sender, poisoned, wire, wait=wait)
    assert doubts.about(poisoned.held.partition) and not sender.under_way
