"""From Kafka records to columns: reading, decoding, schemas."""
