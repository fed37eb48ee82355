"""The routes: lookups, listings, streams of frames, WebSockets, the control API.

- session: one WebSocket connection and its subscriptions
- unsure: an event that may be in Kafka, though its write failed
- control API: the requests by which a client opens, begins, changes and ends a stream
"""
