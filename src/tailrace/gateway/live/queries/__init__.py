"""Queries that clients follow: members, numbered messages.

- watched query: a query that clients follow. It is read once and each change is encoded once; all live clients
  share a position.
- member: a key whose row matches the query
- progress: how far one partition of a query was followed: offset and number of the last message. Code calls one a
  course.
- leap: going on from a comparison of all members, after which earlier reads no longer count
- behind: a client that is coming in or reads slowly. The newest change of each key is kept for it.
- linger: how long a query is followed after its last client has left
- lease: how long a query is evaluated for a gateway that does not refresh it
"""
