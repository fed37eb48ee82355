"""The materializer's side of the store."""
