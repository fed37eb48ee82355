"""Queries that clients follow, evaluated for the partitions of this materializer.

A row that matches a query is a *member* of it. The *enrolment* of a query makes members of the rows that were there
before it. A *timer* says when a row must be looked at again, because a query over it has `now()`.
"""
