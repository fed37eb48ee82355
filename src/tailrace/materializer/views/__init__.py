"""Changelogs of views: batches, expiry, hand-over, and upkeep of partitions."""
