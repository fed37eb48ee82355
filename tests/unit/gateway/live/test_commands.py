"""Commands that are written without waiting: none of them outlives the stream that it is of."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.contracts.commands import Command, Stream
from tailrace.gateway.live.commands import CommandWriter


class Records:
    """What was written, in its order."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bool]] = []

    async def put(self, key: str, value: bytes | None) -> None:
        self.written.append((key, value is not None))

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("over", [False, True], ids=["in use", "ended meanwhile"])
def test_a_refresh_that_may_stand_behind_the_end_of_its_stream_is_followed_by_another_end(over: bool) -> None:
    records = Records()
    stream = Stream("s-1", "orders", (), "total > 1", begun=True, expires=0, ttl=60)

    async def ended() -> bool:
        assert records.written == [("s-1", True)], "it is looked at after the refresh was written"
        return over

    async def refresh() -> None:
        commands = CommandWriter(records)
        commands.later("s-1", Command("refresh", stream), ended)
        await commands.close()

    asyncio.run(refresh())
    assert records.written == [("s-1", True), *([("s-1", False)] if over else [])]
