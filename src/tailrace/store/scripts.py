"""Scripts: one atomic step each, run by the server that holds their keys."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, cast

import redis

from tailrace.store.async_servers import AsyncServers
from tailrace.store.servers import Servers


def script_text(name: str) -> str:
    """What stands in the file of a script."""
    return (files("tailrace.store") / f"{name}.lua").read_text()


class _Text:
    """What a script is, and what Redis knows it by."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


class Script(_Text):
    """A script of the materializer; all its keys have one hash tag."""

    def __init__(self, servers: Servers, text: str) -> None:
        super().__init__(text)
        self._servers = servers

    def __call__(self, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        """Run it; raises Unavailable."""
        with self._servers.at(keys[0]) as client:
            try:
                return client.evalsha(self.digest, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:
                # Redis forgets scripts when it restarts, and knows this one from here on.
                return client.eval(self.text, len(keys), *keys, *args)


class AsyncScript(_Text):
    """A script of the gateway; all its keys have one hash tag."""

    def __init__(self, servers: AsyncServers, text: str) -> None:
        super().__init__(text)
        self._servers = servers

    async def __call__(self, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        """Run it; raises Unavailable."""
        async with self._servers.at(keys[0]) as client:
            try:
                return await cast(Any, client.evalsha(self.digest, len(keys), *cast(list[str], [*keys, *args])))
            except redis.exceptions.NoScriptError:
                return await cast(Any, client.eval(self.text, len(keys), *cast(list[str], [*keys, *args])))
