"""Types of columns and events, as one tree: which JSON values they have, checked and documented.

`spark` reads a type from Spark's text, and `tailrace.avro.schema` from an Avro schema.

- nullable: null is a value of the type
- optional: a field that may be missing; then its default is written
- binary: values are written as bytes; the JSON of any other value goes on as it came
- mismatch: a value that is not of its type, with its place
"""
