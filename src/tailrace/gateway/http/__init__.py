"""The routes: lookups, listings, streams of frames, WebSockets, the control API.

- session: one WebSocket connection and its subscriptions
"""
