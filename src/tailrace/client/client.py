"""A client of the gateway: subscriptions over one WebSocket, or over Server-Sent Events if it does not get through.

It connects with the first subscription, and reconnects until it is closed: with full jitter, from where it was.
Cancelling an iteration ends nothing. Leaving `async with` ends everything, and leaves no task behind.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import urlsplit

import httpx

from tailrace.client.again import SOON, Route, Verdict, delay
from tailrace.client.connections import End, Socket, Timing, stream
from tailrace.client.conversation import Conversation
from tailrace.client.credentials import Credentials, Secret
from tailrace.client.frames import Change
from tailrace.client.subscription import Refused, Status, Subscription, call
from tailrace.client.targets import Target, events_path, is_apart, key_text

log = logging.getLogger(__name__)

_DEFAULT_TIMING = Timing()


class Callbacks(TypedDict, total=False):
    """What a subscription calls; see `Subscription`."""

    on_change: Callable[[Change], None]
    on_status: Callable[[Status, object], None]


class Client:
    """Follows views and feeds of one gateway.

    token: a JWT, or a function that gives one, called before each connection and before it expires. ticket: a function
    that gives a one-time ticket. transport: `auto`, `socket` or `events`. loads: reads the JSON of rows and events.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Secret | None = None,
        ticket: Callable[[], str | Awaitable[str]] | None = None,
        transport: Literal["auto", "socket", "events"] = "auto",
        timing: Timing = _DEFAULT_TIMING,
        tls: ssl.SSLContext | None = None,
        loads: Callable[[str], Any] = json.loads,
        on_status: Callable[[str, object], None] | None = None,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise Refused(f"expected the gateway's address as http:// or https://, got {url!r}")
        self.status = "idle"
        self.on_status = on_status
        self._url = url.rstrip("/") + "/"
        self._credentials = Credentials(token, ticket)
        self._timing, self._tls, self._loads = timing, tls, loads
        self._route = Route(transport)
        self._subscriptions: dict[Subscription, None] = {}
        self._names: dict[str, Subscription] = {}
        self._count = self._attempt = 0
        self._socket: Socket | None = None
        self._conversation = Conversation()
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewal: asyncio.TimerHandle | None = None
        self._failure: Refused | None = None
        self._closed = False
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            verify=tls if tls is not None else True,
            follow_redirects=True,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def follow(
        self,
        view: str,
        *,
        keys: Iterable[object] | None = None,
        where: str | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> Subscription:
        """Follow some keys of a view, the rows that match a query, or the whole view."""
        target: dict[str, Any] = {"view": view}
        if keys is not None:
            target["keys"] = list(dict.fromkeys(key_text(key) for key in keys))
            if not target["keys"]:
                raise Refused("expected at least one key, got none: omit keys to get all rows")
        if where is not None:
            target["where"] = where
        return self._add(target, **callbacks)

    def feed(
        self, feed: str, client: object, *, position: str | None = None, **callbacks: Unpack[Callbacks]
    ) -> Subscription:
        """Follow a feed. `position` is that of the last event that was seen, if any."""
        target = {"feed": feed, "client": key_text(client)}
        return self._add(target, position=position, **callbacks)

    def stream(self, stream: str, **callbacks: Unpack[Callbacks]) -> Subscription:
        """Follow a stream that was opened with `POST /streams`. It has a connection of its own: Server-Sent Events."""
        return self._add({"stream": stream}, **callbacks)

    async def close(self) -> None:
        """End every subscription and the connection."""
        if self._closed:
            return
        for subscription in list(self._subscriptions):
            subscription.close()
        self._closed = True
        self._stop_renewal()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()
        self._say("closed")

    def leave(self, subscription: Subscription) -> None:
        """For a subscription: follow it no longer."""
        self._subscriptions.pop(subscription, None)
        self.hold(subscription)

    def hold(self, subscription: Subscription) -> None:
        """For a subscription: receive nothing for it until it is served again."""
        link = subscription.link
        link.held = True
        if link.stream is not None:
            link.stream.cancel()
        if self._names.pop(link.name, None) is not None and self._socket is not None:
            self._socket.send(self._conversation.unsubscribe(link.name))

    def serve(self, subscription: Subscription) -> None:
        """For a subscription: receive, from where it was."""
        subscription.link.held = False
        if self._closed or subscription.ended:
            return
        if self._failure is not None:
            subscription.fail(self._failure)
        elif self._over_events(subscription):
            self._start_stream(subscription)
        elif self._socket is not None:
            self._subscribe(self._socket, subscription)
        elif self._keeper is None or self._keeper.done():
            self._keeper = self._task(self._keep())

    def _add(self, target: Target, **options: Any) -> Subscription:
        if self._closed:
            raise Refused("the client is closed: make another")
        subscription = Subscription(target, self, loads=self._loads, **options)
        subscription.apart = is_apart(target, (other.target for other in self._subscriptions))
        self._subscriptions[subscription] = None
        self.serve(subscription)
        return subscription

    # Over one WebSocket.

    async def _keep(self) -> None:
        """Keep a socket open, until Server-Sent Events are to be tried."""
        while self._route.transport == "socket" and self._failure is None:
            self._say("connecting")
            end, got_through = await self._run_socket()
            if not end.opened and got_through is False and self._route.failed():
                break
            verdict = self._credentials.refused() if end.verdict == "token" else end.verdict
            if verdict == "stop":
                self._fail(_refused(end.details))
                return
            self._say("waiting", end.details)
            for subscription in list(self._subscriptions):
                if not subscription.apart:
                    subscription.say("waiting", end.details)
            await asyncio.sleep(self._wait(verdict, self._attempt, end.retry_after))
            self._attempt += 1
        for subscription in list(self._subscriptions):
            if not subscription.link.held:
                self._start_stream(subscription)

    async def _run_socket(self) -> tuple[End, bool | None]:
        """One socket until it ends; and whether it got through, where it was tried."""
        try:
            token = await self._credentials.ask()
            url = await self._credentials.address("ws" + self._url.removeprefix("http") + "ws")
        except Exception as error:
            log.warning("token=unavailable error=%r", str(error))
            return End(details={"error": str(error)}), None
        if self._credentials.stale:
            return End("token", opened=True), None
        socket = Socket()

        def opened() -> None:
            self._route.opened()
            self._say("live")
            self._socket, self._conversation, self._names = socket, Conversation(), {}
            if token is not None:
                socket.send({"type": "auth", "token": token})
            for subscription in list(self._subscriptions):
                if not subscription.link.held and not subscription.apart:
                    self._subscribe(socket, subscription)

        try:
            end = await socket.run(url, self._timing, self._tls, opened, self._receive)
        finally:
            self._socket = None
            self._stop_renewal()
        # A refusal of the gateway itself has got through; a proxy's has no remedy.
        return end, end.opened or "remedy" in end.details

    def _subscribe(self, socket: Socket, subscription: Subscription) -> None:
        link = subscription.link
        if link.stream is not None:
            link.stream.cancel()
        self._count += 1
        link.name = f"s{self._count}"
        self._names[link.name] = subscription
        subscription.say("connecting")
        socket.send(self._conversation.subscribe(link.name, subscription.target, subscription.begin("socket")))

    def _receive(self, text: str) -> None:
        try:
            message = self._loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            log.warning("message=unreadable characters=%d", len(text))
            return
        for name, frame in self._conversation.receive(message):
            if name is None:
                self._about(frame)
                continue
            subscription = self._names.get(name)
            if subscription is None:
                continue
            if frame.get("type") == "error":
                self._refuse(subscription, frame)
                continue
            if frame.get("type") == "ready":
                self._attempt = 0
            subscription.take(frame)

    def _about(self, frame: Mapping[str, Any]) -> None:
        if frame.get("type") == "authenticated":
            self._credentials.accepted()
            self._stop_renewal()
            left = (frame.get("expires") or 0) / 1000 - time.time()
            if self._credentials.renewable and left > 0:
                loop = asyncio.get_running_loop()
                self._renewal = loop.call_later(left * 0.8, lambda: self._task(self._renew()))
        elif frame.get("type") == "error":
            log.warning("gateway=complains error=%r remedy=%r", frame.get("error"), frame.get("remedy"))

    async def _renew(self) -> None:
        try:
            token = await self._credentials.ask()
        except Exception as error:
            # The gateway ends the connection when the token has expired; by then there may be another.
            log.warning("token=unavailable error=%r", str(error))
            return
        if self._socket is not None:
            self._socket.send({"type": "auth", "token": token})

    def _refuse(self, subscription: Subscription, frame: Mapping[str, Any]) -> None:
        link = subscription.link
        self._names.pop(link.name, None)
        if not frame.get("retry"):
            self._subscriptions.pop(subscription, None)
            subscription.fail(_refused(frame))
            return
        before = link.name
        subscription.say("waiting", frame)

        async def again() -> None:
            await asyncio.sleep(self._wait("again", link.attempt))
            link.attempt += 1
            if link.name == before and not link.held and not subscription.ended and self._socket is not None:
                self._subscribe(self._socket, subscription)

        self._task(again())

    # Over Server-Sent Events, a stream each.

    def _start_stream(self, subscription: Subscription) -> None:
        link = subscription.link
        if link.stream is None or link.stream.done() or link.stream.cancelling():
            link.stream = self._task(self._keep_stream(subscription))

    async def _keep_stream(self, subscription: Subscription) -> None:
        link = subscription.link
        while self._over_events(subscription):
            subscription.say("connecting")
            end = await self._run_stream(subscription)
            if not end.opened and end.verdict == "again" and self._route.transport == "events":
                self._route.failed()
            verdict = self._credentials.refused() if end.verdict == "token" else end.verdict
            if verdict == "stop":
                self._subscriptions.pop(subscription, None)
                subscription.fail(_refused(end.details))
                return
            subscription.say("waiting", end.details)
            await asyncio.sleep(self._wait(verdict, link.attempt, end.retry_after))
            link.attempt += 1
        link.stream = None
        self.serve(subscription)

    async def _run_stream(self, subscription: Subscription) -> End:
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        position = subscription.begin("events").get("position")
        try:
            token = await self._credentials.ask()
            url = await self._credentials.address(self._url + events_path(subscription.target, position))
        except Exception as error:
            log.warning("token=unavailable error=%r", str(error))
            return End(opened=True, details={"error": str(error)})
        if self._credentials.stale:
            return End("token", opened=True)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"

        def opened() -> None:
            if self._route.transport == "events":
                self._route.opened()
            self._credentials.accepted()
            self._say("live")

        return await stream(self._http, url, headers, self._timing, subscription, opened)

    def _over_events(self, subscription: Subscription) -> bool:
        return self._route.transport == "events" or subscription.apart

    # Both.

    def _wait(self, verdict: Verdict, attempt: int, retry_after: float = 0.0) -> float:
        if verdict == "soon":
            return random.random() * SOON
        timing = self._timing
        part = random.random()
        return delay(attempt, part, first=timing.first, longest=timing.longest, retry_after=retry_after)

    def _fail(self, error: Refused) -> None:
        self._failure = error
        for subscription in list(self._subscriptions):
            subscription.fail(error)
        self._subscriptions.clear()
        self._say("failed", error)

    def _say(self, status: str, detail: object = None) -> None:
        if self.status == status != "waiting":
            return
        self.status = status
        if self.on_status is not None:
            call(self.on_status, status, detail)

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nothing would come any more, and nobody would know.
            log.error("client=failed", exc_info=error)
            self._fail(Refused(f"a fault of the client, please report it: {error!r}"))


def _refused(details: Mapping[str, Any]) -> Refused:
    said = details.get("message") or details.get("error") or details.get("reason") or "the gateway has refused"
    remedy = details.get("remedy")
    return Refused(f"{said}: {remedy}" if remedy else str(said), details)
