"""Keys that clients follow: rows, ranked by version.

- vector: the position of several keys: per partition the offset up to which nothing of any of them is missing
- progress: how far the changes of a partition were heard, and whether none can have been missed
"""
