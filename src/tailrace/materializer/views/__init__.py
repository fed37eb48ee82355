"""Changelogs of views: of each key, the newest change counts."""
