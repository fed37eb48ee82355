"""How often clients ask the brokers which topics there are, and who leads their partitions."""

from __future__ import annotations

# A client sees a new topic after this time. The default is five minutes. For that long a client may also stand still
# after its only broker was stopped in order: it has heard that nobody leads the partition, and has nobody left to ask.
REFRESH = {"topic.metadata.refresh.interval.ms": 5_000}
