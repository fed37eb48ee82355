"""Queries that clients follow, evaluated for the partitions of this materializer.

- member: a key whose row matches a query now
- enrol: to look at the rows that were there before a query was, and make those that match members
- settled: a message that completes an offset: a gateway that has it, and all before it, has seen everything
  up to there
- break: the offsets that were applied without evaluating a query; the enrolment after it makes up for them
- timer: when a row must be looked at again, because a query over it has `now()`
"""
