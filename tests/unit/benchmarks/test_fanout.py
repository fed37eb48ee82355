"""The arithmetic of `benchmarks/run fanout`."""

from __future__ import annotations

import json
from typing import Any

from fanout_figures import Load, at_share, costs, merged, ratios, summary
from under_load import ROW_BYTES, row


def test_a_row_has_its_number_and_time_and_always_the_same_length() -> None:
    for number in (1, 123_456_789):
        text = row(number, 7, 1_790_000_000_000_000_000)
        assert len(text) == ROW_BYTES
        assert text.startswith(b'{"n":%d,"t":1790000000000000000,' % number)
        assert json.loads(text)["key"] == 7


def test_a_share_of_delays_stays_within_a_bucket_that_occurred() -> None:
    buckets = [(1_000_000, 50), (2_000_000, 49), (9_000_000, 1)]
    assert [at_share(buckets, share) for share in (0.5, 0.51, 0.99, 1.0)] == [1.0, 2.0, 2.0, 9.0]
    assert at_share([], 0.5) is None


def test_delays_of_rounds_are_taken_together_and_not_averaged() -> None:
    assert merged([[(5, 1), (7, 2)], [(5, 3)], []]) == [(5, 4), (7, 2)]


def test_a_figure_is_the_median_of_the_rounds_and_what_was_left_out_is_their_sum() -> None:
    trials: list[dict[str, Any]] = [
        {"per_s": 10.4, "idle_kb": 3.25, "delays": [(1_000_000, 1)], "skipped": 2},
        {"per_s": 30.0, "idle_kb": 1.0, "delays": [(3_000_000, 3)], "skipped": 1},
        {"per_s": 20.2, "idle_kb": None, "delays": [], "skipped": 0},
    ]
    assert summary(trials) == {
        "per_s": 20,
        "idle_kb": 2.12,
        "p50_ms": 3.0,
        "p99_ms": 3.0,
        "skipped": 3,
        "rounds": 3,
    }


def test_goals_are_told_of_sse_on_one_key_and_a_thousand_connections() -> None:
    table = {
        Load("sse", 1000, 1): {
            "tailrace": {"per_core_s": 90, "single_per_core_s": 40},
            "limit": {"per_core_s": 100, "single_per_core_s": 50},
            "nchan": {"per_core_s": 30},
        },
        Load("websocket", 1000, 1): {"tailrace": {"per_core_s": 50}, "limit": {"per_core_s": 100}},
        Load("sse", 1000, 10): {"limit": {"per_core_s": 100}},
    }
    found = ratios(table)
    assert (found["ratio_limit"], found["ratio_limit_single"]) == (0.9, 0.8)
    assert (found["ratio_nchan"], found["ratio_nchan_single"]) == (3.0, None)
    assert (found["ratio_centrifugo"], found["ratio_centrifugo_single"]) == (None, None)
    assert found["ratios"]["websocket_1000_1"] == {"per_core_s_vs_limit": 0.5}
    assert "sse_1000_10" not in found["ratios"]


def test_a_delivery_of_a_query_of_a_feed_and_under_tls_is_compared_with_one_of_a_key() -> None:
    table = {
        Load("sse", 1000, 1): {
            "tailrace": {"delivery_us": 6.0, "single_per_core_s": 150, "per_core_s": 900},
            "tailrace-query": {"delivery_us": 7.5, "single_per_core_s": 120, "per_core_s": 1000},
            "tailrace-feed": {"delivery_us": 9.0, "single_per_core_s": 100},
            "tailrace-tls": {"delivery_us": 12.0, "per_core_s": 300},
            "limit": {"delivery_us": 3.0, "single_per_core_s": 300, "per_core_s": 1800},
        },
        Load("websocket", 1000, 1): {"tailrace-query": {"delivery_us": 7.5}, "limit": {"delivery_us": 3.0}},
    }
    found = costs(table)
    assert (found["cost_query"], found["cost_feed"], found["cost_tls"]) == (1.25, 1.5, 2.0)
    assert found["costs"] == {
        "sse_1000_1": {
            "query": 1.25,
            "query_single": 1.25,
            "query_saturated": 0.9,
            "feed": 1.5,
            "feed_single": 1.5,
            "tls": 2.0,
            "tls_saturated": 3.0,
        }
    }
    # What others are compared with is the gateway whose clients follow keys.
    assert set(ratios(table)["ratios"]["sse_1000_1"]) == {"single_per_core_s_vs_limit", "per_core_s_vs_limit"}
