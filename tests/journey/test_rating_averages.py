"""From a rating on a Kafka topic to a row, a 304 and a frame, through the command line's processes."""

from __future__ import annotations

import httpx
import pytest

from oracle import changelog
from running import Tailrace, eventually
from sse import Follower


@pytest.fixture
def live(tailrace: Tailrace) -> Tailrace:
    tailrace.start_all("--rehearse", "yes")
    return tailrace


def test_ratings_become_averages_that_clients_read_follow_and_resume(live: Tailrace) -> None:
    """One journey, because Spark takes seconds to start: each block is a promise of its own."""
    url = live.row_url(362)

    # A key that is not there, and a view that is not there, are told apart.
    missing = httpx.get(url, timeout=30)
    assert missing.status_code == 404 and "362" in missing.text
    unknown = httpx.get(f"{live.url}/views/nothing/362", timeout=30)
    assert unknown.status_code == 404 and "nothing" in unknown.text and live.view in unknown.text

    # A client may follow a key before it exists: ready, then the row when it comes.
    early = Follower(f"{url}/events")
    early.wait(lambda f: [frame.event for frame in f.frames] == ["ready"])

    # With and without a record key, the average is 9.
    live.produce({"movie_id": 362, "rating": 10})
    live.produce({"movie_id": 362, "rating": 8}, key=b"anything")
    nine = {"movie_id": 362, "rating": 9.0, "ratings": 2}
    eventually(lambda: live.row(362) == nine, "the average of 10 and 8 is 9")
    response = httpx.get(url, timeout=30)
    assert response.text == '{"movie_id":362,"rating":9.0,"ratings":2}'
    assert response.headers["content-type"].startswith("application/json")
    early.wait(lambda f: f.rows[-1:] == [nine])
    assert [row["ratings"] for row in early.rows] in ([1, 2], [2])

    # The ETag is the position: unchanged is 304, and the client's frame carries the same coordinate.
    etag = response.headers["etag"]
    assert httpx.get(url, headers={"If-None-Match": etag}, timeout=30).status_code == 304
    assert early.frames[-1].id == etag.strip('"')

    # A late client gets a snapshot first: row, ready, then what is new.
    late = Follower(f"{url}/events")
    late.wait(lambda f: [frame.event for frame in f.frames] == ["row", "ready"])
    live.rate([(362, 3)])
    seven = {"movie_id": 362, "rating": 7.0, "ratings": 3}
    for follower in (early, late):
        follower.wait(lambda f: f.rows[-1:] == [seven])
    position = late.frames[-1].id
    early.close()
    late.close()

    # Resuming gives the suffix and nothing else; resuming again gives nothing.
    live.rate([(362, 5)])
    eventually(lambda: (live.row(362) or {}).get("ratings") == 4, "the fourth rating")
    resumed = Follower(f"{url}/events", last_id=position)
    resumed.wait(lambda f: f.frames[-1:] != [] and f.frames[-1].event == "ready")
    assert [frame.event for frame in resumed.frames] == ["row", "ready"] and resumed.rows[0]["ratings"] == 4
    resumed.close()
    idle = Follower(f"{url}/events", last_id=resumed.frames[-1].id)
    idle.wait(lambda f: f.frames != [])
    assert [frame.event for frame in idle.frames] == ["ready"]
    idle.close()

    # What can't be used never stops anything: it is counted by reason and shown.
    live.produce(b"not json", b"{} trailing", b"\xff", b"", '{"rating": 7}', '{"movie_id": "x", "rating": 7}', None)
    live.rate([(362, 11), (362, 10)])
    eventually(lambda: (live.row(362) or {}).get("ratings") == 5, "the good rating after the bad ones")
    label = f'view="{live.view}"'

    def skipped(name: str) -> dict[str, float]:
        found = live.metrics(name)
        return {
            reason: next(
                (v for k, v in found.items() if k.startswith("tailrace_skipped_total") and reason in k and label in k),
                0,
            )
            for reason in ("null-value", "malformed", "no-key")
        }

    expected = {"null-value": 1.0, "malformed": 5.0, "no-key": 1.0}
    eventually(lambda: skipped("gateway") == expected, "skipped records in the gateway's /metrics")
    assert skipped("pipeline") == expected

    # The changelog is for everyone, and the rehearsal of batch boundaries has left nothing in it.
    written = changelog(live.broker.address, live.view)
    assert written.keys() == {"362"} and {record.generation for record in written["362"]} == {1}
    assert written["362"][-1].row == live.row(362)

    # The documents and health pages are there.
    assert httpx.get(f"{live.url}/docs", timeout=30).status_code == 200
    assert f"/views/{live.view}/{{key}}" in httpx.get(f"{live.url}/openapi.json", timeout=30).json()["paths"]
    assert httpx.get(f"{live.url}/health/live", timeout=30).status_code == 200
    assert httpx.get(f"{live.url}/health/ready", timeout=30).status_code == 200
