"""Feeds that clients follow: events, each chained to the one before it.

- live: a follower that gets events as they are passed on
- late: a follower that reads on from the history, at its own pace
- front: the offset up to which all live followers of a client have everything
- behind: the highest offset that was heard of; above the front, it is a gap
"""
