"""What clients follow: subscriptions, what they ask for, and where they resume.

- watched: what some client follows (a key, a query, a client of a feed), shared by all its followers
- follower: a subscription, or its part in one key, that is written what has changed
- live: a follower that has its snapshot, and is written every change from there on
- come in: get from a position, or from nothing, to being live
"""
