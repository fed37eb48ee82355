"""The store: rows, positions and events in Redis, which may be lost at any time and are restored from Kafka."""
