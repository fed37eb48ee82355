"""The limits of a query, so that one client's query is never a burden for all rows of a view."""

from __future__ import annotations

MAX_TEXT = 16_384  # characters
MAX_TOKENS = 3000
MAX_NESTING = 16  # nested parentheses
MAX_PREFIXES = 8  # `not` and signs in a row
MAX_OPERATORS = 64  # + - * / %
MAX_COST = 200  # comparisons per row, in the worst case
MAX_LIST = 1000  # values after `in`
MAX_PATTERN = 256  # characters after `like`
MAX_DIGITS = 38  # of a number, as in Spark
