"""Feeds that clients follow: events, each chained to the one before it."""
