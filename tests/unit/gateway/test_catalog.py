"""What the gateway knows of an app, from the catalog's records."""

from __future__ import annotations

import json

from tailrace.contracts.catalog import APP_RECORD, Catalog, CatalogTopic, CatalogView, Column
from tailrace.gateway.catalog import ServedCatalog

KEY = (Column("movie_id", "bigint"),)
AVERAGES = CatalogView(
    "averages", "averages-log", "id", 2, 3, KEY, (Column("rating", "double"),), {}, sources={"ratings": "r"}
)
RATINGS = CatalogTopic("ratings", "json", (*KEY, Column("rating", "double")), accept=True)


def test_the_columns_of_a_view_are_those_of_its_key_and_its_own() -> None:
    known = ServedCatalog()
    known.load({APP_RECORD: Catalog("movies", {"averages": AVERAGES}).encode()})
    view = known.views["averages"]
    assert view.columns == (*KEY, Column("rating", "double"))
    assert (view.changelog, view.sources, view.by_offset) == ("averages-log", ("ratings",), False)


def test_another_column_is_no_other_build() -> None:
    known = ServedCatalog()
    known.load({APP_RECORD: Catalog("movies", {"averages": AVERAGES}).encode()})
    wider = CatalogView(**{**AVERAGES.__dict__, "columns": (*AVERAGES.columns, Column("ratings", "bigint"))})
    assert known.load({APP_RECORD: Catalog("movies", {"averages": wider}).encode()}) == set()
    assert known.views["averages"].columns[-1] == Column("ratings", "bigint")


def test_topics_are_known_with_their_columns_and_a_catalog_from_before_has_none() -> None:
    known = ServedCatalog()
    data = Catalog("movies", {"averages": AVERAGES}, topics={"ratings": RATINGS}).encode()
    known.load({APP_RECORD: data})
    assert known.topics == {"ratings": RATINGS}
    older = json.loads(data)
    del older["topics"]
    del older["views"]["averages"]["by_offset"]
    known.load({APP_RECORD: json.dumps(older).encode()})
    assert known.topics == {} and set(known.views) == {"averages"}
