"""Events in: what clients write to topics, checked against the declared schema.

- codec: how the values, or the keys, of a topic are checked and become bytes
- span: a value in a JSON text, with its own text, which goes on byte for byte
- once: the idempotency key of a request
- unsure: an event that may be in Kafka, though its write failed
"""
