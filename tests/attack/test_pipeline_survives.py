"""Whatever stands on the catalog topic, the pipeline goes on, serves everybody else, and starts again."""

from __future__ import annotations

import random

from oracle import rating_averages
from poisoning import GARBAGE, damaged
from running import Tailrace, eventually
from tailrace.contracts.catalog import APP_RECORD, PROGRESS_RECORDS, ViewProgress, catalog_topic
from tailrace.contracts.requests import REQUEST_RECORDS, Request
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.catalog_topic import CatalogReader
from tailrace.kafka.one_partition import OnePartitionWriter


def test_no_request_catalog_or_progress_ends_it_or_its_next_start(tailrace: Tailrace) -> None:
    chance, address = random.Random(1), tailrace.broker.address
    topic = catalog_topic(tailrace.app)
    tailrace.start_all()
    tailrace.rate([(1, 4.0)])
    eventually(lambda: tailrace.row(1) is not None, "the first row")
    writer = OnePartitionWriter(Brokers(address), topic, "catalog")
    good = CatalogReader(Brokers(address), topic).read_whole()[APP_RECORD]
    # None is for the generation that is served; those that are would be begun.
    asked = Request(7, {tailrace.topic: {"0": 1}}).encode()

    def poison() -> None:
        for _ in range(60):
            garbage = chance.choice(GARBAGE)
            name = chance.choice([tailrace.view, tailrace.view, "", "nothing", "\x00", "x" * 300])
            writer.put(REQUEST_RECORDS + name, chance.choice([garbage, damaged(chance, asked)]))
            writer.put(APP_RECORD, chance.choice([garbage, damaged(chance, good)]))
            progress = ViewProgress(tailrace.view, 1, 3, 5).encode()
            writer.put(PROGRESS_RECORDS + tailrace.view, chance.choice([garbage, damaged(chance, progress)]))
        writer.flush()

    def agree(movie: int) -> None:
        tailrace.rate([(movie, 2.0), (1, 5.0)])
        wanted = rating_averages(address, tailrace.topic)
        eventually(lambda: all(tailrace.row(key) == row for key, row in wanted.items()), f"rows with movie {movie}")

    poison()
    metric = 'tailrace_pipeline_set_aside_total{what="request"}'
    eventually(lambda: tailrace.metrics("pipeline").get(metric, 0) > 0, "requests are set aside")
    agree(2)
    # A request that can be read and can't be done: the served rows move on.
    nowhere = {"nothing": {"99": 10**15}, tailrace.topic: {"99": -2, "00": -2}}
    writer.put(REQUEST_RECORDS + tailrace.view, Request(1, nowhere).encode())
    writer.flush()
    agree(3)
    tailrace.parts["pipeline"].check()
    poison()
    tailrace.kill("pipeline")
    tailrace.start_pipeline()
    tailrace.wait_ready("pipeline")
    agree(4)
    tailrace.kill("materializer")
    tailrace.start_materializer()
    tailrace.wait_ready("materializer")
    agree(5)
