"""Builds: a view goes on where it left off only while it is still the same view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailrace import App, View
from tailrace.catalog import Catalog, CatalogView, Column, Progress
from tailrace.errors import DefinitionChanged
from tailrace.pipeline.builds import choose_build, definition


@pytest.fixture
def view() -> View:
    app = App("movies")
    ratings = app.topic("ratings", value="movie_id long, rating double")
    return app.view("averages", ratings.where("rating > 0"), key="movie_id", columns={"rating": "avg(rating)"})


@pytest.fixture
def wanted(view: View) -> CatalogView:
    return CatalogView(
        name="averages",
        changelog="averages",
        topic_id="T1",
        partitions=2,
        generation=0,
        key=(Column("movie_id", "bigint"),),
        columns=(Column("rating", "double"),),
        definition=definition(view, 2),
        sources={"ratings": "S1"},
    )


def test_the_first_build_is_generation_one(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    build, entry = choose_build("movies", view, None, wanted, tmp_path)
    assert build.generation == entry.generation == 1 and build.checkpoint.is_relative_to(tmp_path / "averages")


def test_an_unchanged_view_goes_on_with_its_checkpoint(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first, entry = choose_build("movies", view, None, wanted, tmp_path)
    first.checkpoint.mkdir(parents=True)
    again, _ = choose_build("movies", view, entry, wanted, tmp_path)
    assert again == first


@pytest.mark.parametrize(
    ("lost", "change"),
    [("changelog", {"topic_id": "T2"}), ("source", {"sources": {"ratings": "S2"}}), ("checkpoint", {})],
)
def test_a_build_that_lost_its_ground_starts_the_next_generation(
    view: View, wanted: CatalogView, tmp_path: Path, lost: str, change: dict[str, object]
) -> None:
    first, entry = choose_build("movies", view, None, wanted, tmp_path)
    if lost != "checkpoint":
        first.checkpoint.mkdir(parents=True)
    changed = replace(wanted, **change)  # type: ignore[arg-type]
    build, entry = choose_build("movies", view, entry, changed, tmp_path)
    assert build.generation == entry.generation == 2 and build.checkpoint != first.checkpoint


def test_a_lost_catalog_does_not_bring_an_old_checkpoint_back(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first, _ = choose_build("movies", view, None, wanted, tmp_path)
    first.checkpoint.mkdir(parents=True)
    build, _ = choose_build("movies", view, None, wanted, tmp_path)
    assert build.generation == 2


def test_a_changed_definition_is_refused_with_the_difference(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    _, entry = choose_build("movies", view, None, wanted, tmp_path)
    changed = replace(wanted, definition={**wanted.definition, "columns": {"rating": "max(rating)"}})
    with pytest.raises(DefinitionChanged, match=r"avg\(rating\).*max\(rating\)"):
        choose_build("movies", view, entry, changed, tmp_path)


def test_the_catalog_survives_being_written_and_read(wanted: CatalogView) -> None:
    catalog = Catalog(app="movies", views={"averages": wanted})
    assert Catalog.decode(catalog.encode()) == catalog
    progress = Progress(view="averages", generation=1, batch=7, inputs=100, skipped={"malformed": 3})
    assert Progress.decode(progress.encode()) == progress


def test_progress_of_a_newer_pipeline_is_read_by_an_older_gateway() -> None:
    assert Progress.decode(b'{"view":"v","generation":1,"batch":2,"inputs":3,"invented":4}').inputs == 3
