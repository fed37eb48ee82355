"""The materializer: changelog → store."""
