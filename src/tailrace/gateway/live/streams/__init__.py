"""Streams: what a client follows, kept by the gateways, and changed while the client follows it."""
