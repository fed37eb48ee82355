"""A writer to a real Redis, which lacks the position of a partition during one chosen call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import redis

from tailrace.store.connection.scripts import Script
from tailrace.store.write.writer import StoreWriter


class LosingWriter(StoreWriter):
    """Renames the position right before the first call of a script, and back right after it.

    So only this call meets a Redis that does not know the partition. Later calls find everything as it was.
    """

    def __init__(self, url: str, prefix: str, script: str, position: bytes) -> None:
        self.lost = False
        self._chosen = script
        self._position = position
        self._client = redis.Redis.from_url(url)
        super().__init__(url, prefix)

    def script(self, *names: str) -> Script:
        made = super().script(*names)
        return _Losing(self, made) if names == (self._chosen,) else made

    def takes(self, key: bytes) -> bool:
        """Whether the call with this key is the one to disturb."""
        return not self.lost and key == self._position

    @contextmanager
    def away(self) -> Iterator[None]:
        """Take the position from Redis meanwhile."""
        self.lost = True
        kept = cast(str, self._position + b":away")
        self._client.rename(cast(str, self._position), kept)
        try:
            yield
        finally:
            self._client.rename(kept, cast(str, self._position))


class _Losing(Script):
    def __init__(self, writer: LosingWriter, script: Script) -> None:
        super().__init__(script._servers, script.text)
        self._writer = writer

    def __call__(self, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        if not self._writer.takes(keys[0]):
            return super().__call__(keys, args)
        with self._writer.away():
            return super().__call__(keys, args)
