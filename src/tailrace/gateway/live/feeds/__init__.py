"""Feeds that clients follow: events, each chained to the one before it.

- live: a connection that gets events as they are passed on
- behind: a connection that reads on from the history, at its own pace
- front: the offset up to which all live connections of a client have everything
"""
