"""How often the gateway does what it does by the clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.store.layout.feed_keys import LEASE


@dataclass(frozen=True)
class Timing:
    """The gateway's intervals; each default has its reason.

    `keep_alive`: proxies commonly close a response that was silent for 30 or 60 s.
    `sweep`: within this time a message that pub/sub lost is made up for.
    `ping`: a dead pub/sub link is found within twice this time.
    `patience`: how long a position ahead of a whole store may wait for it before a `reset`.
    `poll`: between two reads of a key whose partition is being restored.
    `grace`: how long a draining gateway takes to let its clients go, and waits for those that do not read.
    `slow`: who has read nothing of what waits for it for this long is gone, or as good as.
    `request`: how long a client may take to send the head of a request, and as long again for its body.
    `idle`: how long a connection is kept between two requests.
    `introduction`: how long a WebSocket may take to say who it is.
    `lease`: how long the clients of feeds stay registered when a gateway dies; refreshed in a third of it, within which
    an event that pub/sub lost is made up for, too.
    `query_lease`: how long a query is evaluated for a gateway that has died; refreshed three times as often.
    `linger`: how long a query is followed after its last client has left, so that who comes back finds it complete.
    `look`: how often a gateway looks whether a stream that was opened there is still there: it may end elsewhere.
    `late`: how long a message may take that a read has shown to be published, before it is taken for lost.
    """

    keep_alive: float = 15.0
    sweep: float = 5.0
    ping: float = 2.0
    patience: float = 30.0
    poll: float = 1.0
    grace: float = 5.0
    slow: float = 60.0
    request: float = 30.0
    idle: float = 5.0
    introduction: float = 10.0
    lease: float = LEASE
    query_lease: float = 60.0
    linger: float = 30.0
    look: float = 60.0
    late: float = 0.5
