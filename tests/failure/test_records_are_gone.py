"""Retention overtakes a stopped pipeline: said loudly, never a stall, and what is left is processed."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from running import Tailrace, eventually


def test_retention_overtakes_a_stopped_pipeline(tailrace: Tailrace) -> None:
    tailrace.start_all()
    tailrace.rate([(7, 4)] * 10)
    label = f'{{view="{tailrace.view}"}}'
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 10, "the first ratings")
    eventually(lambda: tailrace.metrics("pipeline")[f"tailrace_inputs_total{label}"] == 10, "their batch has ended")
    tailrace.parts.pop("pipeline").stop()

    # Twenty more come, and all that the topic holds is removed; then five that stay.
    tailrace.rate([(7, 10)] * 20)
    admin = AdminClient({"bootstrap.servers": tailrace.broker.address})
    removed = [TopicPartition(tailrace.topic, number, -1) for number in range(2)]
    for future in admin.delete_records(removed).values():
        future.result(30)
    tailrace.rate([(7, 1)] * 5)

    tailrace.start_pipeline()
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 15, "what is left was added to what was there")
    assert (tailrace.row(7) or {})["rating"] == 3.0
    tailrace.wait_ready("pipeline")
    assert tailrace.metrics("pipeline")[f"tailrace_lost_total{label}"] == 20
    log = (tailrace.directory / "pipeline.log").read_text()
    assert f"view {tailrace.view}: 20 records were removed" in log

    # It is live again, and the loss is told once.
    tailrace.rate([(7, 1)])
    eventually(lambda: (tailrace.row(7) or {}).get("ratings") == 16, "a live rating")
    assert log.count(f"view {tailrace.view}: 20 records were removed") == 1
