"""Kafka from Python: topics, the catalog topic and changelogs. Spark has its own clients."""
