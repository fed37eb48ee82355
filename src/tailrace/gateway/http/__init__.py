"""The routes: lookups, listings, streams of frames, WebSockets, the control API."""
