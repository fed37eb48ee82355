"""The frames about a subscription itself, on the surface of its wire: `ready`, `reset`, `progress`."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.contracts.position import Position
from tailrace.gateway.frames.sse import frame
from tailrace.gateway.frames.websocket import json_message
from tailrace.gateway.live.subscription import Subscription


def ready(subscription: Subscription, about: Mapping[str, object], position: Position) -> bytes:
    """Everything up to the position has been sent; `about` is what Server-Sent Events say of it."""
    if subscription.wire.socket:
        return json_message("ready", id=subscription.id, position=str(position))
    return frame("ready", about, position)


def reset(subscription: Subscription, reason: str, message: str, position: Position) -> bytes:
    """Drop what you hold: everything follows. `position` is one that asks for everything."""
    if subscription.wire.socket:
        return json_message("reset", id=subscription.id, reason=reason, message=message)
    return frame("reset", {"reason": reason, "message": message}, position)


def progress(subscription: Subscription, offset: int | None, target: int | None) -> bytes:
    """The answer has to wait for a restore, which has come so far."""
    if subscription.wire.socket:
        return json_message("progress", id=subscription.id, offset=offset, target=target)
    return frame("progress", {"offset": offset, "target": target})
