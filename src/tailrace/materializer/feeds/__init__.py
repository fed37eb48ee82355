"""Changelogs of feeds: every event counts, and only for clients that listen.

- mark: per source topic and partition, the highest version of a feed's events that was taken. An event that
  is not above it is a replay.
- ordered: a feed whose changelog has the events in the order of each source partition, at most one per record
- lapse: the end of a registration that was not refreshed, and of everything that was kept for it
- grace: the few seconds that gateways have to register their clients again after Redis was lost
"""
