"""Queries: which rows of a view a client wants, as the text after SQL's WHERE.

`parse` turns the text into a predicate by the columns of the view. A predicate is a small tree of our own: nothing of
the text is ever run. No I/O; the gateway and the materializers use the same predicates.
"""

from __future__ import annotations

from tailrace.queries.cells import row_decoder
from tailrace.queries.error import QueryError
from tailrace.queries.index import QueryIndex
from tailrace.queries.parser.parsing import parse
from tailrace.queries.predicate import Predicate

__all__ = ["Predicate", "QueryError", "QueryIndex", "parse", "row_decoder"]
