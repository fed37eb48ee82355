"""Queries: which rows of a view a client wants, as the text after SQL's WHERE.

`parse` reads the text by the columns of the view and gives a predicate. A predicate is a small tree of our own; it says
whether a row matches, and when that changes by the clock. Nothing of the text is ever run. No I/O; the gateway and the
materializers use the same predicates.
"""

from __future__ import annotations

from tailrace.queries.cells import row_decoder
from tailrace.queries.error import QueryError
from tailrace.queries.index import QueryIndex
from tailrace.queries.parser.parsing import parse
from tailrace.queries.predicate import Predicate

__all__ = ["Predicate", "QueryError", "QueryIndex", "parse", "row_decoder"]
