"""Keys that clients follow: rows, ranked by version."""
