"""Changelogs of feeds: every event counts, and only for clients that listen."""
