"""Scripts: one atomic step each, run by the server that holds their keys."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

import redis

from tailrace.store.servers import Servers


class Script:
    """The script in the file of a name; all its keys have one hash tag."""

    def __init__(self, servers: Servers, name: str) -> None:
        self._servers = servers
        self.text = (files("tailrace.store") / f"{name}.lua").read_text()
        self.digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        """Run it; raises Unavailable."""
        with self._servers.at(keys[0]) as client:
            try:
                return client.evalsha(self.digest, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:
                # Redis forgets scripts when it restarts, and knows this one from here on.
                return client.eval(self.text, len(keys), *keys, *args)
