"""What an app needs of Spark and Kafka."""

from __future__ import annotations

from tailrace import App
from tailrace.pipeline.analysis.resources import all_slots, own_topics


def app(**modes: str) -> App:
    found = App("movies")
    ratings = found.topic("ratings", value="movie_id long, rating double")
    for name, mode in modes.items():
        found.view(name, ratings, key="movie_id", columns={"n": "count(*)"}, mode=mode)
    return found


def slots(declared: App) -> int:
    return all_slots(declared, {}, {}, 3, 2)


def test_a_real_time_view_has_slots_for_itself_its_rehearsal_and_the_dead_letters() -> None:
    assert slots(app(a="real-time")) == (3 + 2) + (3 + 2) + 3


def test_no_micro_batch_can_take_the_slots_of_a_real_time_view() -> None:
    both = app(a="real-time", b="micro-batch", c="micro-batch")
    assert slots(both) == slots(app(a="real-time")) + 3 + 3


def test_a_dead_letter_may_be_longer_than_its_record() -> None:
    (letters,) = (topic for topic in own_topics(app(a="real-time"), {}) if topic.name == "ratings.dead-letters")
    assert int(letters.config["max.message.bytes"]) > 2 * 1024 * 1024


def test_commands_have_one_partition_that_keeps_the_newest_of_each_stream_for_a_while() -> None:
    (commands,) = (topic for topic in own_topics(app(a="real-time"), {}) if topic.name == "tailrace.movies.commands")
    assert commands.partitions == 1 and commands.config["cleanup.policy"] == "compact,delete"
