"""How often clients ask the brokers which topics there are, and who leads their partitions."""

from __future__ import annotations

# A new topic is seen after that time. By default it is five minutes, and so long a client may also stand still after
# its only broker was stopped in order: it was told that nobody leads the partition, and has nobody left to ask.
REFRESH = {"topic.metadata.refresh.interval.ms": 5_000}
