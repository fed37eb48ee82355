"""Queries that clients follow: members, numbered messages."""
