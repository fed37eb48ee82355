"""The gateway's side of the store."""
