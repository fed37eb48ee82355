"""A backlog is caught up in micro-batches, then the view goes live on the same state; the rows are the same."""

from __future__ import annotations

import json
import subprocess
import sys

from confluent_kafka import Consumer, TopicPartition

from oracle import rating_averages, read_topic
from running import PATIENCE, Tailrace, eventually
from tailrace.kafka.brokers import Brokers
from tailrace.kafka.topics import Topics
from tailrace.pipeline.lifecycle.backlog import MANY

MOVIES = 50
BAD = (b"no JSON", b"{", b"\xff")


def test_a_large_backlog_is_caught_up_then_live_and_lag_tools_see_it(tailrace: Tailrace) -> None:
    Topics(Brokers(tailrace.broker.address)).create(tailrace.topic, partitions=2, replication=1, config={})
    tailrace.rate((n % MOVIES, n * 7 % 11) for n in range(MANY))
    tailrace.produce(*BAD)
    tailrace.rate((n % MOVIES, n * 7 % 11) for n in range(10_000))
    tailrace.start_all()
    expected = rating_averages(tailrace.broker.address, tailrace.topic)
    eventually(lambda: all(tailrace.row(key) == row for key, row in expected.items()), "every row after catching up")
    log = (tailrace.directory / "pipeline.log").read_text()
    assert "catching-up" in log and log.index("catching-up") < log.index("is live")
    mode = f'tailrace_pipeline_mode{{mode="live",view="{tailrace.view}"}}'
    eventually(lambda: tailrace.metrics("pipeline").get(mode) == 1, "the metrics say live")

    # Live on the same state: the next rating is added to what was caught up.
    tailrace.rate([(1, 10)])
    ratings = expected["1"]["ratings"] + 1
    eventually(lambda: (tailrace.row(1) or {}).get("ratings") == ratings, "one more rating in real time")

    # After the batch, any lag tool sees how far the view is.
    consumer = Consumer(
        {
            "bootstrap.servers": tailrace.broker.address,
            "group.id": f"tailrace.{tailrace.app}.{tailrace.view}",
        }
    )
    ends = [TopicPartition(tailrace.topic, number) for number in range(2)]

    def lag() -> int:
        committed = consumer.committed(ends, timeout=15)
        return sum(consumer.get_watermark_offsets(at, timeout=15)[1] - at.offset for at in committed)

    eventually(lambda: lag() == 0, "the group's lag is zero")
    consumer.close()

    # What the view has skipped among so many is found, and nothing else.
    letters_of = f"{tailrace.topic}.dead-letters"
    eventually(lambda: len(read_topic(tailrace.broker.address, letters_of)) == len(BAD), "the dead letters")
    assert {message.value() for message in read_topic(tailrace.broker.address, letters_of)} == set(BAD)

    # `tailrace status` says the same in words, and in JSON for machines.
    command = [sys.executable, "-m", "tailrace", "status", tailrace.app]
    command += ["--kafka", tailrace.broker.address, "--redis", tailrace.redis.url]
    table = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    assert tailrace.view in table and "live" in table
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    (found,) = told["views"]
    (letters,) = told["dead_letters"]
    assert (letters["topic"], letters["letters"]) == (tailrace.topic, {"malformed": len(BAD)})
    assert (found["mode"], found["behind"], found["lost"], found["store_behind"]) == ("live", 0, 0, 0)
    assert found["inputs"] == MANY + len(BAD) + 10_001
