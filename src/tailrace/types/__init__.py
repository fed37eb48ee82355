"""Types of columns and of events, in Spark's spelling and in Avro's: what values they have, as JSON."""
