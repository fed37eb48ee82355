"""One connection each: a WebSocket, or a stream of Server-Sent Events."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from tailrace.client.again import Verdict, after_close, after_reason, after_status
from tailrace.client.events import EventParser
from tailrace.client.subscription import Subscription

log = logging.getLogger(__name__)

_PROTOCOL = Subprotocol("tailrace.v1")


@dataclass(frozen=True)
class Timing:
    """In seconds. A WebSocket that has said nothing for `quiet` is asked, and has `patience` to answer. Server-Sent
    Events can't be asked, and are given up after `silence`. `connect` is how long connecting may take. `first` and
    `longest` bound the time between two attempts.
    """

    quiet: float = 20.0
    patience: float = 10.0
    silence: float = 40.0
    connect: float = 10.0
    first: float = 0.5
    longest: float = 30.0


@dataclass(frozen=True)
class End:
    """How a connection has ended. One that was never `opened` may not get through at all."""

    verdict: Verdict = "again"
    opened: bool = False
    retry_after: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)


class Socket:
    """A WebSocket that messages can be sent on at any time while it runs."""

    def __init__(self) -> None:
        self._out: asyncio.Queue[str] = asyncio.Queue()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, in its turn."""
        self._out.put_nowait(json.dumps(message, ensure_ascii=False, separators=(",", ":")))

    async def run(
        self,
        url: str,
        timing: Timing,
        tls: ssl.SSLContext | None,
        opened: Callable[[], None],
        receive: Callable[[str], None],
    ) -> End:
        """Connect, and receive until the connection ends. A dead one is found within `quiet` + `patience`."""
        connected = False
        try:
            async with connect(
                url,
                subprotocols=[_PROTOCOL],
                compression=None,
                open_timeout=timing.connect,
                ping_interval=timing.quiet,
                ping_timeout=timing.patience,
                close_timeout=min(1.0, timing.patience),
                max_size=None,
                ssl=(tls or True) if url.startswith("wss:") else None,
            ) as socket:
                connected = True
                opened()
                writer = asyncio.create_task(self._write(socket.send))
                try:
                    async for message in socket:
                        if isinstance(message, str):
                            receive(message)
                finally:
                    writer.cancel()
                    await asyncio.gather(writer, return_exceptions=True)
                code, reason = socket.close_code or 1006, socket.close_reason or ""
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd is not None else 1006
            reason = closed.rcvd.reason if closed.rcvd is not None else str(closed)
        except InvalidStatus as refused:
            status, body = refused.response.status_code, bytes(refused.response.body)
            return _refusal(status, refused.response.headers.get("Retry-After"), body)
        except (OSError, TimeoutError, InvalidHandshake) as error:
            return End(details={"error": str(error) or type(error).__name__}, opened=connected)
        except (KeyError, TypeError, ValueError) as error:
            # A frame that is not of the protocol: what comes after it can't be trusted, what is held can.
            log.exception("frame=unreadable")
            return End(opened=True, details={"error": repr(error)})
        return End(after_close(code), True, details={"code": code, "reason": reason})

    async def _write(self, send: Callable[[str], Any]) -> None:
        with suppress(ConnectionClosed):
            while True:
                await send(await self._out.get())


async def stream(
    http: httpx.AsyncClient,
    url: str,
    headers: Mapping[str, str],
    timing: Timing,
    subscription: Subscription,
    opened: Callable[[], None],
) -> End:
    """Follow one stream of Server-Sent Events until it ends."""
    connected = False
    timeout = httpx.Timeout(timing.silence, connect=timing.connect)
    try:
        async with http.stream("GET", url, headers=dict(headers), timeout=timeout) as response:
            if response.status_code != 200 or not response.headers.get("Content-Type", "").startswith(
                "text/event-stream"
            ):
                body = await response.aread()
                return _refusal(response.status_code, response.headers.get("Retry-After"), body)
            connected = True
            opened()
            parser = EventParser()
            async for text in response.aiter_text():
                for event in parser.feed(text):
                    for frame in subscription.frames.take(event):
                        if frame["type"] == "close":
                            verdict = after_reason(frame.get("reason", ""), retry=frame.get("retry", True))
                            return End(verdict, True, details=frame)
                        subscription.take(frame)
    except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
        return End(opened=connected, details={"error": str(error) or type(error).__name__})
    return End(opened=True)


def _refusal(status: int, retry_after: str | None, body: bytes) -> End:
    try:
        details = json.loads(body)
    except ValueError:
        details = None
    if not isinstance(details, dict):
        details = {"error": body[:200].decode(errors="replace")}
    verdict: Verdict = "again" if status == 200 else after_status(status)
    return End(verdict, False, seconds_of(retry_after), {"status": status, **details})


def seconds_of(retry_after: str | None) -> float:
    """The seconds that a Retry-After header asks for, as a number or a date; 0 if it is neither."""
    if not retry_after:
        return 0.0
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
