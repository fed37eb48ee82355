"""Builds: a view goes on where it left off only while it is still the same view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailrace import App, View
from tailrace.contracts.catalog import Catalog, CatalogView, Column, ViewProgress
from tailrace.contracts.requests import Request
from tailrace.errors import DefinitionChanged
from tailrace.pipeline.analysis.definitions import definition
from tailrace.pipeline.lifecycle.generations import Build, choose_build, remove_older


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


def made(build: Build) -> Build:
    build.checkpoint.mkdir(parents=True)
    return build


def test_the_first_build_is_generation_one(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    chosen = choose_build("movies", view, None, wanted, tmp_path)
    assert chosen.build.generation == chosen.entry.generation == 1 and not chosen.handing_over
    assert chosen.build.checkpoint.is_relative_to(tmp_path / "averages")


def test_an_unchanged_view_goes_on_with_its_checkpoint(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    made(first.build)
    assert choose_build("movies", view, first.entry, wanted, tmp_path) == first


def test_a_changelog_that_was_made_anew_is_filled_at_once(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    made(first.build)
    second = choose_build("movies", view, first.entry, replace(wanted, topic_id="T2"), tmp_path)
    assert second.entry.generation == 2 and not second.handing_over


@pytest.mark.parametrize("lost", ["source", "checkpoint"])
def test_readers_keep_the_old_rows_while_a_build_that_lost_its_ground_is_made_anew(
    view: View, wanted: CatalogView, tmp_path: Path, lost: str
) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    if lost == "source":
        made(first.build)
        wanted = replace(wanted, sources={"ratings": "S2"})
    second = choose_build("movies", view, first.entry, wanted, tmp_path)
    assert second.handing_over and second.build.generation == 2 and second.build.checkpoint != first.build.checkpoint
    assert replace(second.entry, next=None) == first.entry and second.entry.next is not None
    # A restart in the middle goes on with the build that is being made.
    made(second.build)
    assert choose_build("movies", view, second.entry, wanted, tmp_path) == second


def test_a_lost_catalog_does_not_bring_an_old_checkpoint_back(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    made(choose_build("movies", view, None, wanted, tmp_path).build)
    assert choose_build("movies", view, None, wanted, tmp_path).build.generation == 2


def test_a_lost_catalog_and_lost_checkpoints_do_not_start_below_what_the_changelog_holds(
    view: View, wanted: CatalogView, tmp_path: Path
) -> None:
    assert choose_build("movies", view, None, wanted, tmp_path, above=4).build.generation == 5


def test_a_changed_definition_is_refused_with_the_difference(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    changed = replace(wanted, definition={**wanted.definition, "columns": {"rating": "max(rating)"}})
    with pytest.raises(DefinitionChanged, match=r"avg\(rating\).*max\(rating\)[\s\S]*tailrace rebuild movies averages"):
        choose_build("movies", view, first.entry, changed, tmp_path)


def test_a_changed_definition_is_built_when_it_was_asked_for(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    made(first.build)
    changed = replace(wanted, definition={**wanted.definition, "columns": {"rating": "max(rating)"}})
    request = Request(after=1, starts={"ratings": {"0": 7}})
    second = choose_build("movies", view, first.entry, changed, tmp_path, request)
    assert second.handing_over and second.build.generation == 2 and second.build.starts == {"ratings": {"0": 7}}
    made(second.build)
    # The request is for the generation that is now being made: it does not make another.
    again = choose_build("movies", view, second.entry, changed, tmp_path, request)
    assert again == second


def test_a_definition_that_is_taken_back_goes_on_where_it_was(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    made(first.build)
    changed = replace(wanted, definition={**wanted.definition, "columns": {"rating": "max(rating)"}})
    second = choose_build("movies", view, first.entry, changed, tmp_path, Request(after=1))
    made(second.build)
    back = choose_build("movies", view, second.entry, wanted, tmp_path, Request(after=1))
    assert (back.build, back.entry) == (first.build, first.entry)
    # The number of the build that was given up is not used again: its records are still on the changelog.
    third = choose_build("movies", view, back.entry, changed, tmp_path, Request(after=1))
    assert third.build.generation == 3


@pytest.fixture
def table() -> View:
    app = App("movies")
    return app.latest("titles", app.table("movies", key="id", value="title string"))


@pytest.fixture
def wanted_table(table: View, wanted: CatalogView) -> CatalogView:
    return replace(
        wanted,
        name="titles",
        definition=definition(table, 2),
        sources={"movies": "S1"},
        counts={"movies": 2},
        by_offset=True,
    )


def test_partitions_that_were_added_build_the_next_generation_while_the_old_one_goes_on(
    table: View, wanted_table: CatalogView, tmp_path: Path
) -> None:
    first = choose_build("movies", table, None, wanted_table, tmp_path)
    made(first.build)
    grown = replace(wanted_table, counts={"movies": 6})
    second = choose_build("movies", table, first.entry, grown, tmp_path)
    assert second.handing_over and second.served == first.build and "6 partitions in place of 2" in second.stale
    assert second.build.ground.spread == {"movies": 6}
    assert second.entry.next is not None and not second.entry.next.by_offset
    made(second.build)
    # A restart in the middle goes on with both.
    assert choose_build("movies", table, second.entry, grown, tmp_path) == second
    # Still more partitions: the build that is being made does not fit any more.
    third = choose_build("movies", table, second.entry, replace(grown, counts={"movies": 8}), tmp_path)
    assert third.build.generation == 3 and third.build.ground.spread == {"movies": 8}
    assert third.served == first.build


def test_a_topic_whose_keys_have_moved_once_is_read_so_for_ever(
    table: View, wanted_table: CatalogView, tmp_path: Path
) -> None:
    served = replace(wanted_table, generation=2, counts={"movies": 6}, spread={"movies": 6}, by_offset=False)
    places = choose_build("movies", table, served, replace(wanted_table, counts={"movies": 6}), tmp_path)
    # Its checkpoint is gone, and still the next generation knows.
    assert places.build.generation == 3 and places.build.ground.spread == {"movies": 6}
    # A topic that was deleted and made anew has no keys that have moved.
    anew = replace(wanted_table, counts={"movies": 6}, sources={"movies": "S2"})
    assert choose_build("movies", table, served, anew, tmp_path).build.ground.spread == {}


def test_with_refuse_a_build_goes_on_and_is_said_to_be_stale_until_a_rebuild_is_asked_for(
    table: View, wanted_table: CatalogView, tmp_path: Path
) -> None:
    first = choose_build("movies", table, None, wanted_table, tmp_path)
    made(first.build)
    grown = replace(wanted_table, counts={"movies": 6})
    kept = choose_build("movies", table, first.entry, grown, tmp_path, keep_moved=True)
    assert kept.build == first.build and not kept.handing_over and "partitions were added" in kept.stale
    again = choose_build("movies", table, kept.entry, grown, tmp_path, keep_moved=True)
    assert again == kept, "also after a restart"
    asked = choose_build("movies", table, kept.entry, grown, tmp_path, Request(after=1), keep_moved=True)
    assert asked.handing_over and asked.served == first.build and asked.build.ground.spread == {"movies": 6}


def test_a_reset_that_began_later_begins_there_again_after_partitions_were_added(
    table: View, wanted_table: CatalogView, tmp_path: Path
) -> None:
    served = replace(wanted_table, generation=1, starts={"movies": {"0": 7, "1": 9}})
    second = choose_build("movies", table, served, replace(wanted_table, counts={"movies": 3}), tmp_path)
    assert second.build.starts == {"movies": {"0": 7, "1": 9, "2": -2}}


def test_a_changelog_keeps_the_partitions_that_readers_look_for_rows_in(
    view: View, wanted: CatalogView, tmp_path: Path
) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    made(first.build)
    grown = choose_build("movies", view, first.entry, replace(wanted, partitions=6), tmp_path)
    assert grown.entry.partitions == grown.build.partitions == 2
    rebuilt = choose_build("movies", view, first.entry, replace(wanted, partitions=6), tmp_path, Request(after=1))
    assert rebuilt.build.partitions == 2


def test_a_view_is_built_anew_with_the_view_that_it_reads_and_goes_back_with_it(
    view: View, wanted: CatalogView, tmp_path: Path
) -> None:
    wanted = replace(wanted, parents={"parent": 1}, reads={"parent": "n bigint"})
    first = choose_build("movies", view, None, wanted, tmp_path)
    made(first.build)
    second = choose_build("movies", view, first.entry, replace(wanted, parents={"parent": 2}), tmp_path)
    assert second.handing_over and second.served == first.build and second.build.ground.parents == {"parent": 2}
    made(second.build)
    # The parent's columns are others: what was built from the old ones can't go on.
    other = replace(wanted, parents={"parent": 3}, reads={"parent": "n string"})
    third = choose_build("movies", view, second.entry, other, tmp_path)
    assert third.build.generation == 3 and third.served is None
    # The parent went back to what it was.
    back = choose_build("movies", view, second.entry, wanted, tmp_path)
    assert back.build == first.build and not back.handing_over


def test_a_build_of_another_rule_for_versions_is_made_anew(view: View, wanted: CatalogView, tmp_path: Path) -> None:
    first = choose_build("movies", view, None, wanted, tmp_path)
    made(first.build)
    second = choose_build("movies", view, first.entry, replace(wanted, versioning=2), tmp_path)
    assert second.handing_over and second.served is None


def test_checkpoints_of_older_generations_are_removed_and_others_stay(
    view: View, wanted: CatalogView, tmp_path: Path
) -> None:
    first = made(choose_build("movies", view, None, wanted, tmp_path).build)
    second = made(choose_build("movies", view, None, wanted, tmp_path).build)
    other = tmp_path / "averages" / "0a0a0a0a-1"
    other.mkdir()
    remove_older(second)
    assert not first.checkpoint.exists() and second.checkpoint.exists() and other.exists()


def test_the_catalog_survives_being_written_and_read(wanted: CatalogView) -> None:
    catalog = Catalog(app="movies", views={"averages": wanted})
    assert Catalog.decode(catalog.encode()) == catalog
    progress = ViewProgress(view="averages", generation=1, batch=7, inputs=100, skipped={"malformed": 3})
    assert ViewProgress.decode(progress.encode()) == progress


def test_progress_of_a_newer_pipeline_is_read_by_an_older_gateway() -> None:
    assert ViewProgress.decode(b'{"view":"v","generation":1,"batch":2,"inputs":3,"invented":4}').inputs == 3
