"""The routes: lookups, listings, streams of frames, WebSockets, the control API.

- session: one WebSocket connection and its subscriptions
- control API: the requests by which a client opens, begins, changes and ends a stream
"""
