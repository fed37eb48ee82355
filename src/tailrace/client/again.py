"""When to try again, and over which transport. No I/O."""

from __future__ import annotations

from typing import Literal

from tailrace.client.local_copy import Transport

Verdict = Literal["soon", "again", "token", "stop"]
"""`soon`: the gateway shuts down, others are there; `again`: with backoff; `token`: with another one; `stop`: not."""

SOON = 2.0


def delay(attempt: int, random: float, *, first: float = 0.5, longest: float = 30.0, retry_after: float = 0.0) -> float:
    """Seconds to wait before an attempt, with full jitter, so that clients do not come all at once."""
    return retry_after + random * min(longest, first * 2.0 ** min(attempt, 30))


def after_close(code: int) -> Verdict:
    """What the client should do after a WebSocket has ended."""
    if code == 1001:
        return "soon"
    if code == 4401:
        return "token"
    return "stop" if code in (1009, 4400, 4403) else "again"


def after_reason(reason: str, *, retry: bool = True) -> Verdict:
    """The same for the `close` frame of Server-Sent Events."""
    if reason == "shutdown":
        return "soon"
    if reason == "unauthorized":
        return "token"
    return "stop" if reason in ("forbidden", "gone") or not retry else "again"


def after_status(status: int) -> Verdict:
    """The same for the HTTP status of a stream that was refused."""
    if status == 401:
        return "token"
    if status == 204:
        return "stop"
    return "stop" if 400 <= status < 500 and status not in (408, 425, 429) else "again"


class Route:
    """Which transport to take next: WebSocket, or Server-Sent Events if that does not get through."""

    def __init__(self, transport: Literal["auto", "socket", "events"] = "auto") -> None:
        self._fixed = transport != "auto"
        self.transport: Transport = "events" if transport == "events" else "socket"
        self._failures = 0
        self._worked: set[Transport] = set()

    def opened(self) -> None:
        """The transport has got through."""
        self._failures = 0
        self._worked.add(self.transport)

    def failed(self) -> bool:
        """It has not. True if the other one is to be tried at once; a transport that has worked gets three attempts."""
        self._failures += 1
        if self._fixed or self._failures < (3 if self.transport in self._worked else 1):
            return False
        self._failures = 0
        self.transport = "events" if self.transport == "socket" else "socket"
        return self.transport == "events"
