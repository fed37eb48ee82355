"""Scripts: each is one atomic step, and runs on the server that holds its keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, cast

import redis

from tailrace.store.connection.outages import denied_in_script, unavailable
from tailrace.store.connection.servers import AsyncServers, Servers

# Keys and arguments of a script.
Call = tuple[Sequence[bytes], Sequence[Any]]


def script_text(*names: str) -> str:
    """The text of a script in several files: the last one uses functions that those before it define."""
    return "".join((files("tailrace.store") / "scripts" / f"{name}.lua").read_text() for name in names)


_CALL = re.compile(r"(?:call|in_chunks)\('([A-Z]+)'")


def commands_in(text: str) -> list[str]:
    """The commands that a script calls."""
    return sorted(set(_CALL.findall(text)))


class _Text:
    """The text of a script, and the digest by which Redis knows it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()

    def explained(self, error: Exception) -> Exception:
        """The error; with what the script calls if its user may not do that, and Redis does not say what it is."""
        if (denied := denied_in_script(error)) is None:
            return error
        return redis.exceptions.NoPermissionError(f"{denied}; the script calls {', '.join(commands_in(self.text))}")


class Script(_Text):
    """A script of the materializer; all its keys have one hash tag."""

    def __init__(self, servers: Servers, text: str) -> None:
        super().__init__(text)
        self._servers = servers

    def __call__(self, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        """Run it; raises Unavailable."""
        with self._servers.at(keys[0]) as client:
            try:
                return self._call(client, keys, args)
            except redis.ResponseError as error:
                raise self.explained(error) from None

    def _call(self, client: redis.Redis, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        try:
            return client.evalsha(self.digest, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            # Redis forgets its scripts when it restarts. This teaches it the script again.
            return client.eval(self.text, len(keys), *keys, *args)

    def all(self, calls: Sequence[Call]) -> list[Any]:
        """Run it for several keys and arguments in their order, in one round trip per server.

        Each run is a step of its own, whatever becomes of the others. An answer is a result, or a
        ResponseError that is no outage. Raises Unavailable if any answer is missing, or is an outage.
        """
        found: list[Any] = [None] * len(calls)
        for places in self._servers.together([keys[0] for keys, _ in calls]):
            for place, answer in zip(places, self._all_at([calls[n] for n in places]), strict=True):
                found[place] = answer
        return found

    def _all_at(self, calls: Sequence[Call]) -> list[Any]:
        with self._servers.at(calls[0][0][0]) as client:
            found = self._run(client, calls)
            unknown = [n for n, result in enumerate(found) if isinstance(result, redis.exceptions.NoScriptError)]
            if unknown:
                # The runs before the first unknown one are done. From there on, none was tried.
                client.script_load(self.text)
                found[unknown[0] :] = self._run(client, calls[unknown[0] :])
            for result in found:
                if isinstance(result, Exception) and unavailable(result) is not None:
                    raise self.explained(result)
            return found

    def _run(self, client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for keys, args in calls:
            pipeline.evalsha(self.digest, len(keys), *keys, *args)
        return pipeline.execute(raise_on_error=False)


class AsyncScript(_Text):
    """A script of the gateway; all its keys have one hash tag."""

    def __init__(self, servers: AsyncServers, text: str) -> None:
        super().__init__(text)
        self._servers = servers

    async def __call__(self, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        """Run it; raises Unavailable."""
        async with self._servers.at(keys[0]) as client:
            try:
                try:
                    return await cast(Any, client.evalsha(self.digest, len(keys), *cast(list[str], [*keys, *args])))
                except redis.exceptions.NoScriptError:
                    return await cast(Any, client.eval(self.text, len(keys), *cast(list[str], [*keys, *args])))
            except redis.ResponseError as error:
                raise self.explained(error) from None
