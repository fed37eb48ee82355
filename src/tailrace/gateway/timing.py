"""The gateway's intervals and deadlines, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.store.layout.feed_keys import LEASE


@dataclass(frozen=True)
class Timing:
    """Each default has its reason.

    `keep_alive`: proxies commonly close a response that was silent for 30 or 60 s.
    `sweep`: within this time the gateway makes up for a message that pub/sub lost.
    `ping`: the gateway notices a dead pub/sub link within twice this time.
    `patience`: how long a position ahead of a whole store may wait for it before a `reset`.
    `poll`: the time between two reads of a store that is being restored.
    `grace`: how long a draining gateway takes to let its clients go, and waits for those that do not read.
    `slow`: a client that has read nothing of what waits for it for this long is ended.
    `request`: how long a client may take to send the head of a request, and as long again for its body.
    `idle`: how long a connection is kept between two requests.
    `introduction`: how long a WebSocket may take to say who it is.
    `lease`: how long the clients of feeds stay registered if their gateway dies. Each third of it, registrations
    are refreshed and events made up for that pub/sub lost.
    `query_lease`: how long a query is evaluated for a gateway that has died; refreshed three times as often.
    `linger`: how long a query is followed after its last client has left: one that comes back finds it complete.
    `look`: how often a gateway checks that a stream that was opened there still exists: it may end elsewhere.
    `late`: how long a message may take that a read has shown to be published. Then it counts as lost.
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
