"""The messages on one WebSocket: which subscriptions each is for. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.client.targets import Target

Message = Mapping[str, Any]
_Route = tuple[str, ...]


class Conversation:
    """`row`, `gone` and `event` name what they are about, not the subscription: this finds the subscriptions."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}
        self._routes: dict[_Route, dict[str, None]] = {}
        self._routes_of: dict[str, set[_Route]] = {}

    def subscribe(self, name: str, target: Target, resume: Mapping[str, Any]) -> dict[str, Any]:
        """The message that subscribes, under this id."""
        self._targets[name] = target
        if "feed" in target:
            self._route(name, ("feed", target["feed"], target["client"]))
        for key in target.get("keys", ()):
            self._route(name, ("key", target["view"], key))
        return {"type": "subscribe", "id": name, **target, **resume}

    def unsubscribe(self, name: str) -> dict[str, Any]:
        """The message that ends a subscription. No later message is for it."""
        self._forget(name)
        return {"type": "unsubscribe", "id": name}

    def receive(self, message: Message) -> list[tuple[str | None, Message]]:
        """The ids and frames that a message means. The id is None if it is about the connection."""
        kind, name = message.get("type"), message.get("id")
        if kind in ("row", "gone"):
            view, query = message.get("view", ""), message.get("query")
            return self._for(
                ("key", view, message.get("key", "")) if query is None else ("query", view, query), message
            )
        if kind == "event":
            return self._for(("feed", message.get("feed", ""), message.get("client", "")), message)
        if name is None:
            return [(None, message)]
        target = self._targets.get(name)
        if target is None:
            return []
        if kind == "subscribed":
            # It comes once more if another token shows other rows: then with another query, or none.
            for route in [one for one in self._routes_of.get(name, ()) if one[0] == "query"]:
                self._leave(name, route)
            if "query" in message:
                self._route(name, ("query", target["view"], message["query"]))
        if kind in ("error", "unsubscribed"):
            self._forget(name)
        return [(name, message)]

    def _for(self, route: _Route, message: Message) -> list[tuple[str | None, Message]]:
        return [(name, message) for name in self._routes.get(route, ())]

    def _route(self, name: str, route: _Route) -> None:
        self._routes.setdefault(route, {})[name] = None
        self._routes_of.setdefault(name, set()).add(route)

    def _leave(self, name: str, route: _Route) -> None:
        self._routes_of[name].discard(route)
        self._routes[route].pop(name, None)
        if not self._routes[route]:
            del self._routes[route]

    def _forget(self, name: str) -> None:
        for route in tuple(self._routes_of.get(name, ())):
            self._leave(name, route)
        self._routes_of.pop(name, None)
        self._targets.pop(name, None)
