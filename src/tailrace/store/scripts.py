"""The store's scripts: each is one step that Redis takes whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import redis
from redis.commands.core import Script

# What Redis says while it can't take writes, wrapped into an error of the script.
_OUTAGE = re.compile(r"\b(OOM|READONLY|LOADING|MISCONF|NOREPLICAS|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|BUSY) ")


def script_text(name: str) -> str:
    """What stands in the file of a script."""
    return (files("tailrace.store") / f"{name}.lua").read_text()


def run(script: Script, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
    """What a script returns; raises one of `Unavailable` where Redis can't take it now, from inside of it, too."""
    try:
        return script(keys=keys, args=args)
    except redis.ResponseError as error:
        if type(error) is redis.ResponseError and _OUTAGE.search(str(error)):
            raise redis.exceptions.ReadOnlyError(str(error)) from error
        raise
