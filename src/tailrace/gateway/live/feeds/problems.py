"""What a client of a feed is refused with."""

from __future__ import annotations

from tailrace.gateway.problems import Problem


def already_followed(feed: str, client: bytes) -> Problem:
    """A 409: frames name the feed and the client, so those of a second subscription would be taken for the first's."""
    return Problem(
        409,
        "already followed",
        expected="one subscription of a feed and client on a connection",
        got=f"a second one of feed {feed}, client {client.decode()[:200]}",
        remedy="Use the subscription that is there, or unsubscribe it first.",
    )
