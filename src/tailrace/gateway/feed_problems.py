"""What a client of a feed is refused with."""

from __future__ import annotations

from tailrace.gateway.known import Known
from tailrace.gateway.problems import Problem


def unknown_feed(known: Known, name: str) -> Problem:
    """A 404: the catalog has no such feed."""
    return Problem(
        404,
        "unknown feed",
        feed=name,
        expected=sorted(known.feeds),
        remedy="Take one of the expected feeds, or declare this one and start the pipeline.",
    )


def already_followed(feed: str, client: bytes) -> Problem:
    """A 409: frames name the feed and the client, so those of a second subscription would be taken for the first's."""
    return Problem(
        409,
        "already followed",
        expected="one subscription of a feed and client on a connection",
        got=f"a second one of feed {feed}, client {client.decode()[:200]}",
        remedy="Use the subscription that is there, or unsubscribe it first.",
    )
