"""The store: rows, positions and events in Redis, which may be lost at any time and are restored from Kafka.

- packed: a change in the bytes that Redis stores and publishes
- whole: a partition that holds everything its changelog held when its restore began
- kept back: rows of the next generation, before the hand-over; nobody reads them
- horizon: the offset up to which Redis may have forgotten tombstones; of a query, the offset after which it
  is known which keys have left. Positions below it get `reset`.
"""
