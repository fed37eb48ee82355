"""Changelogs of feeds: every event counts, for clients that listen."""
