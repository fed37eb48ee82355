"""Queries that clients follow, evaluated for the partitions of this materializer."""
