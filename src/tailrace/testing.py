"""For your own tests: a view on given rows, without Kafka, in milliseconds once Spark is up.

from tailrace.testing import rows

def test_the_average_of_two_ratings() -> None:
    given = {"ratings": [{"movie_id": 1, "rating": 8}, {"movie_id": 1, "rating": 6}]}
    assert rows(movies.rating_averages, given) == [{"movie_id": 1, "rating": 7.0, "ratings": 2}]
"""

from __future__ import annotations

from typing import Any

from tailrace.declarations.given_records import Given, Record
from tailrace.declarations.views import Feed, View

__all__ = ["Given", "Record", "rows", "skipped"]


def rows(output: View | Feed, given: Given) -> list[dict[str, Any]]:
    """The rows of a view, as clients read them, after the given records of its topics; the events of a feed.

    given: topic → records in their order, each a row, or a `Record` if key, headers or timestamp matter. A row of a
        table includes its key columns; `Record(None, key=…)` deletes a row.
    Rows are in the order of their keys. Raises ValueError for a topic that the view does not read.
    """
    from tailrace.pipeline.view.dry_run import rows as computed

    return computed(output, given)


def skipped(output: View | Feed, given: Given) -> dict[str, int]:
    """How many of the given records can't be used, by reason. Only a running view knows of `late` ones."""
    from tailrace.pipeline.view.dry_run import skipped as counted

    return counted(output, given)
