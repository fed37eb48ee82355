"""From Kafka records to columns: reading, decoding, schemas.

- spread: a topic that got partitions after its first records, so that a key may have records in several
"""
