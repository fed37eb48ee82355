"""The store: rows and positions in Redis, disposable, rebuilt from the changelog."""
