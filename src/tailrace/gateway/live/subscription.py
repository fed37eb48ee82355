"""One thing that one connection follows: some keys, a query, a feed or a stream."""

from __future__ import annotations

from typing import Protocol

from tailrace.gateway.connection.wire import Wire


class Subscription(Protocol):
    """A connection that carries Server-Sent Events has one; a WebSocket has many, told apart by `id`.

    `id` is the client's name for it on a WebSocket, and None otherwise. All methods run in the loop's thread and
    do not wait.
    """

    wire: Wire
    id: str | None

    def start(self) -> None:
        """Begin to join: a snapshot, `ready`, then updates are written to the wire."""

    def pause(self) -> None:
        """The client reads too slowly: write nothing until `resume`."""

    def resume(self) -> None:
        """The client has caught up: write what it has missed."""

    def stop(self) -> None:
        """Write nothing more: the client is gone, or wants it no longer. Safe to call again."""

    def close(self) -> None:
        """Leave, and leave nothing behind. Safe to call again."""
