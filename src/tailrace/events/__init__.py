"""Events in: what is written to topics, checked against the declared schema and encoded as the pipeline reads it.

- codec: how the values, or the keys, of a topic are checked and become bytes
- span: a value in a JSON text, with its own text, which goes on byte for byte
- once: the idempotency key of a request
"""
