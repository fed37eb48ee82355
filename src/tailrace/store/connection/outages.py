"""Outages: what Redis answers while it can't be used, and what to do about each.

Each of them means: wait and ask again, and skip nothing. Any other error is a mistake of ours and is raised
as it came. Redis wraps an error inside a script, so that only its text tells which one it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import redis

from tailrace.store.connection.address import Node

_MOVING = ("its slots are being moved", "Nothing to do, unless it lasts: see CLUSTER NODES")
_LOGIN = (
    "it refuses this user",
    "Correct user and password in --redis (TAILRACE_REDIS), or the user's rights: `tailrace acls` prints them",
)
# The code at the start of an answer → what is wrong, and what to do.
CODES: Mapping[str, tuple[str, str]] = {
    "READONLY": ("it is a replica and takes no writes", "Name the master in --redis, or promote this one"),
    "LOADING": ("it is loading its data", "Nothing to do: it answers when it is done"),
    "OOM": ("it is out of memory and takes no writes", "Raise its maxmemory, or give it a larger machine"),
    "MISCONF": ("it can't save to its disk and takes no writes", "Free its disk and read its log"),
    "NOREPLICAS": (
        "it has fewer replicas than min-replicas-to-write and takes no writes",
        "Start its replicas, or lower min-replicas-to-write",
    ),
    "CLUSTERDOWN": ("its cluster does not serve all slots", "Start the nodes that CLUSTER NODES shows as failed"),
    "MASTERDOWN": ("it is a replica without its master", "Name the master in --redis, or start it"),
    "MOVED": _MOVING,
    "ASK": _MOVING,
    "TRYAGAIN": _MOVING,
    "NOAUTH": _LOGIN,
    "WRONGPASS": _LOGIN,
    "NOPERM": _LOGIN,
    "BUSY": ("it runs a script that does not end", "See whose it is, and end it with SCRIPT KILL"),
}
_AWAY = ("it can't be reached", "See whether it runs, and whether --redis (TAILRACE_REDIS) names it")
_SILENT = ("it does not answer in time", "See whether it is overloaded or stopped, and the network to it")
_REFUSES = ("it refuses the command", "See whether it is Redis 6.2 or newer, or a Valkey, with all commands enabled")
# Longer codes first: a shorter one may be the start of a longer one.
_CODE = re.compile(rf"(?:^|@user_script: ?\d+: |caused error: )-?({'|'.join(sorted(CODES, key=len, reverse=True))})\b")
# What Redis 6.2 says, without a code, if a script does what its user may not: a command, a key or a channel.
_DENIED = "user executing the script can't "
_LONGEST = 500
# What a server adds that does not know a command; if that is the login (AUTH, HELLO), it is the password.
_ARGUMENTS = re.compile(r",? ?with args beginning with:.*", re.DOTALL)


class Unavailable(Exception):
    """Redis can't be used now: wait and ask again. The text says why, and `remedy` what to do about it."""

    def __init__(self, code: str, problem: str, remedy: str, got: str, node: Node | None = None) -> None:
        where = f" ({node.name})" if node is not None else ""
        super().__init__(f"Redis{where}: {problem}: {got[:_LONGEST].rstrip('.')}")
        self.code = code
        self.remedy = remedy


def unavailable(
    error: Exception, node: Node | None = None, *, key: bytes = b"", always: bool = False
) -> Unavailable | None:
    """The outage behind an error of the client library; None if it is no outage, unless `always`.

    key: what was asked for, a key or a channel. Redis says which command a user may not run, but not at which key.
    """
    got = _ARGUMENTS.sub("", str(error)) or type(error).__name__
    if isinstance(error, redis.RedisError) and (code := _code(error)) is not None:
        if code == "NOPERM" and key:
            got = f"{got.rstrip('.')}, at {key.decode(errors='replace')}"
        return Unavailable(code, *CODES[code], got, node)
    if isinstance(error, redis.TimeoutError | TimeoutError):
        return Unavailable("TIMEOUT", *_SILENT, got, node)
    if isinstance(error, redis.ConnectionError | redis.InvalidResponse | OSError):
        return Unavailable("AWAY", *_AWAY, got, node)
    if always or "unknown command" in got or "cluster support disabled" in got:
        return Unavailable("ERR", *_REFUSES, got, node)
    return None


def denied_in_script(error: Exception) -> str | None:
    """What Redis 6.2 says if it refuses what a script does: unlike later ones, not which command that was."""
    _, denied, what = str(error).partition(_DENIED)
    return denied + what if denied and isinstance(error, redis.ResponseError) else None


def _code(error: redis.RedisError) -> str | None:
    if error.status_code in CODES:
        return error.status_code
    if isinstance(error, redis.AuthenticationError):
        return "NOAUTH"
    if isinstance(error, redis.ResponseError) and (match := _CODE.search(str(error))) is not None:
        return match[1]
    return "NOPERM" if _DENIED in str(error) else None
