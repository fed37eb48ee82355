"""Types of columns and events, as one tree: which JSON values they have, checked and documented.

`spark` reads a type from Spark's text, `tailrace.avro.schema` one from an Avro schema.
"""
