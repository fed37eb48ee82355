"""Waits for a key, without a Redis: when they read, when they end, and what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailrace.contracts.catalog import Column, ViewProgress
from tailrace.gateway.catalog import ServedCatalog, ServedView
from tailrace.gateway.http.lookup import SourceRecord, behind, by_version, reached
from tailrace.gateway.http.waiting import ClientGone, wait_seconds, while_connected
from tailrace.gateway.live.channels import ChannelRegistry
from tailrace.gateway.live.waits import Waits
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.problems import Problem
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.reader import KeyRead

VIEW = ServedView("latest", "0123abcd", 2, 1, (Column("id", "string"),), sources=("ratings",), by_offset=True)


class Link:
    up = True

    def __init__(self) -> None:
        self.channels: list[bytes] = []

    def join(self, channel: bytes) -> None:
        self.channels.append(channel)

    def leave(self, channel: bytes) -> None:
        self.channels.remove(channel)

    async def joined(self, channel: bytes) -> None:
        assert channel in self.channels


class Cell:
    """What is read, and how often."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0

    async def read(self) -> int:
        self.reads += 1
        return self.value


def waiting(test: Callable[[Waits, Link, Cell], Awaitable[None]]) -> None:
    async def run() -> None:
        link = Link()
        waits = Waits(ChannelRegistry(link, Metrics(ServedCatalog())), lambda *names: names[3])
        await test(waits, link, Cell())
        assert link.channels == [] and len(waits) == 0

    asyncio.run(run())


def test_a_message_wakes_those_who_wait_for_its_key_and_they_share_the_channel() -> None:
    async def test(waits: Waits, link: Link, cell: Cell) -> None:
        asked = [asyncio.create_task(waits.until(VIEW, b"a", cell.read, bool, 30)) for _ in range(5)]
        other = asyncio.create_task(waits.until(VIEW, b"b", Cell().read, bool, 0.2))
        await asyncio.sleep(0.01)
        assert sorted(link.channels) == [b"a", b"b"] and len(waits) == 6
        before = cell.reads
        waits.hear(b"c")
        await asyncio.sleep(0.01)
        assert cell.reads == before, "another key is none of theirs"
        waits.hear(b"a")
        await asyncio.sleep(0.01)
        assert cell.reads == before + 5 and not asked[0].done()
        cell.value = 7
        waits.hear(b"a")
        assert await asyncio.gather(*asked) == [7] * 5
        assert await other == 0

    waiting(test)


def test_a_change_between_the_read_and_the_wait_is_not_missed() -> None:
    async def test(waits: Waits, _: Link, cell: Cell) -> None:
        async def read() -> int:
            found = await cell.read()
            if cell.reads == 2:
                cell.value = 1
                waits.hear(b"a")
            return found

        assert await waits.until(VIEW, b"a", read, bool, 30) == 1

    waiting(test)


def test_what_is_there_is_given_at_once_without_a_channel() -> None:
    async def test(waits: Waits, link: Link, cell: Cell) -> None:
        cell.value = 1
        link.join = None  # type: ignore[assignment, method-assign]
        assert await waits.until(VIEW, b"a", cell.read, bool, 30) == 1

    waiting(test)


def test_a_drain_ends_waits_and_a_cancelled_one_leaves_nothing() -> None:
    async def test(waits: Waits, _: Link, cell: Cell) -> None:
        cancelled = asyncio.create_task(waits.until(VIEW, b"a", cell.read, bool, 30))
        drained = asyncio.create_task(waits.until(VIEW, b"a", cell.read, bool, 30))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        waits.drain()
        assert await drained == 0
        assert await waits.until(VIEW, b"a", cell.read, bool, 30) == 0, "and none begins"
        await asyncio.gather(cancelled, return_exceptions=True)

    waiting(test)


def test_work_ends_with_its_client() -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.sleep(30)
            finally:
                ended.set()

        messages: list[dict[str, Any]] = [{"type": "http.request"}, {"type": "http.disconnect"}]

        async def receive() -> dict[str, Any]:
            return messages.pop(0)

        with pytest.raises(ClientGone):
            await while_connected(receive, work())
        assert ended.is_set()

        async def forever() -> dict[str, Any]:
            await asyncio.sleep(30)
            return {}

        async def quick() -> int:
            return 5

        assert await while_connected(forever, quick()) == 5

    asyncio.run(run())


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=10", 10),
        ('respond-async, WAIT = "5"', 5),
        ("wait=7; foo=bar, wait=9", 7),
        ("wait=999999", 60),
        ("wait=0", 0),
        ("wait", None),
        ("wait=-1", None),
        ("waiting=5", None),
        ("wait=٣", None),
        ("", None),
        (None, None),
    ],
)
def test_the_preference_to_wait_is_read_as_the_standard_says(header: str | None, seconds: int | None) -> None:
    assert wait_seconds(header) == seconds


def test_a_row_tells_by_its_version_only_where_versions_are_offsets() -> None:
    record = SourceRecord.parse("ratings:3:17", VIEW)
    for version, told in ((17, False), (18, True), (30, True)):
        held = KeyRead(StoredRow(2, version, 5, 0, None), 5, True)
        assert by_version(VIEW, held, record) is told
    assert not by_version(VIEW, KeyRead(StoredRow(2, 30, 5, 0, None), 5, False), record), "of a store that is restored"
    counted = ServedView("counted", "0123abcd", 2, 1, VIEW.key, sources=("ratings",))
    assert not by_version(counted, KeyRead(StoredRow(2, 30, 5, 0, None), 5, True), record)
    with pytest.raises(Problem):
        SourceRecord.parse("others:3:17", VIEW)


def test_a_batch_tells_what_its_own_build_has_processed() -> None:
    known, record = ServedCatalog(), SourceRecord("ratings", 3, 17)
    assert "not finished a batch" in behind(known, VIEW, record)
    for generation, following, told in ((1, 99, "not finished"), (2, 17, "ended at offset 16"), (2, 18, "")):
        known.progress = {"latest": ViewProgress("latest", generation, 1, 1, offsets={"ratings": {"3": following}})}
        assert told in behind(known, VIEW, record) and bool(told) is bool(behind(known, VIEW, record))
    assert "before the first" in behind(known, VIEW, SourceRecord("ratings", 4, 0))


def test_the_store_has_reached_an_end_only_with_the_build_that_wrote_it() -> None:
    assert reached(VIEW, KeyRead(None, 9, True, 0, 2), 9)
    assert not reached(VIEW, KeyRead(None, 8, True, 0, 2), 9)
    assert not reached(VIEW, KeyRead(None, 9, True, 0, 1), 9)
    assert not reached(VIEW, KeyRead(None, 9, False, 20, 2), 9)
