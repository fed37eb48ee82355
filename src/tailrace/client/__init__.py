"""A client of the gateway, for programs: follow views and feeds, keep a local copy, resume.

    async with Client("http://localhost:8080") as client:
        async for change in client.follow("orders", where="status = 'open'"):
            print(change)

Logic without I/O is in `local_copy` (the rows, and where to resume), `conversation` (WebSocket messages), `events`
(Server-Sent Events) and `again` (when to try again). `connections` and `client` are thin shells around it. The
protocol is docs/protocol.md. The package needs `tailrace[client]`, and nothing of the gateway, Redis or Kafka.

A request is refused if it is rejected for good: sending it again unchanged would be of no use.
"""

from tailrace.client.client import Client
from tailrace.client.connections import Timing
from tailrace.client.frames import Change, Event, Gone, Progress, Ready, Reset, Row
from tailrace.client.subscription import Refused, Subscription

__all__ = [
    "Change",
    "Client",
    "Event",
    "Gone",
    "Progress",
    "Ready",
    "Refused",
    "Reset",
    "Row",
    "Subscription",
    "Timing",
]
