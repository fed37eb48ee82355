"""Numbers that are sent to break a view: refused at the gateway, dead letters otherwise, and never a wrong number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import cast
from uuid import uuid4

import httpx
import pytest

from oracle import read_topic
from running import Tailrace, eventually
from tailrace.dev.broker import Broker
from tailrace.dev.redis_server import RedisServer

MODULE = """
from tailrace import App

app = App("movies-{fresh}")
ratings = app.topic(
    "ratings-{fresh}",
    value="movie_id long, rating double, votes long, stars tinyint, price decimal(9,2), at timestamp",
    accept=True,
)
columns = {{
    "rating": "avg(rating)", "votes": "sum(votes)", "stars": "max(stars)",
    "worth": "sum(votes * stars)", "n": "count(*)",
}}
app.view("live-{fresh}", ratings, key="movie_id", columns=columns)
app.view("batches-{fresh}", ratings, key="movie_id", columns=columns, mode="micro-batch")
timed = ratings.where("at is not null")
app.view("hourly-{fresh}", timed, key="movie_id", window="1 hour", at="at", columns={{"n": "count(*)"}})
"""
# None of them is a number that its field can hold. The last would keep a task busy for minutes if it were written out.
BAD = (
    '"rating":1e400',
    '"rating":-1e309',
    '"rating":NaN',
    '"stars":200',
    '"votes":9223372036854775808',
    '"price":1e7',
    '"price":1e500000000',
    '"price":"1e500000000"',
)


@pytest.fixture(scope="module")
def fresh() -> str:
    return uuid4().hex[:10]


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, broker: Broker, redis_server: RedisServer, fresh: str
) -> Iterator[Tailrace]:
    app = Tailrace(tmp_path_factory.mktemp("numbers"), broker, redis_server, fresh, MODULE.format(fresh=fresh))
    app.start_all()
    yield app
    app.stop()


def test_no_number_makes_a_view_wrong_or_stops_it(live: Tailrace, fresh: str) -> None:
    events = [f'{{"movie_id":1,{field}}}'.encode() for field in BAD]
    json = {"Content-Type": "application/json"}
    for event in events:
        answer = httpx.post(f"{live.url}/topics/{live.topic}/events", content=event, headers=json, timeout=30)
        assert answer.status_code in (400, 422), (event, answer.text)

    # Other producers ask nobody.
    good = b'{"movie_id":1,"rating":8,"votes":2,"stars":3,"price":1.5}'
    live.produce(good, *events, good)
    great = b'{"movie_id":2,"rating":1.7e308,"votes":9223372036854775807,"stars":2}'
    live.produce(great, great)

    fine = {"movie_id": 1, "rating": 8.0, "votes": 4, "stars": 3, "worth": 12, "n": 2}
    beyond = {"movie_id": 2, "rating": None, "votes": None, "stars": 2, "worth": None, "n": 2}
    for view in ("live", "batches"):
        for wanted in (fine, beyond):
            eventually(partial(_shows, live, f"{view}-{fresh}", wanted), f"{view}: {wanted}")

    letters = f"{live.topic}.dead-letters"
    eventually(lambda: len(read_topic(live.broker.address, letters)) >= len(events), "a dead letter of each")
    found = read_topic(live.broker.address, letters)
    assert sorted(message.value() or b"" for message in found) == sorted(events)
    for message in found:
        headers = dict(cast(list[tuple[str, bytes]], message.headers()))
        assert (
            headers["tailrace.error"].startswith(b"malformed: ") and b"range of its type" in headers["tailrace.error"]
        )
    restarts = [value for name, value in live.metrics("pipeline").items() if "pipeline_restarts_total" in name]
    assert len(restarts) == 3 and not any(restarts)


def _shows(live: Tailrace, view: str, wanted: Mapping[str, object]) -> bool:
    return live.row(wanted["movie_id"], view) == wanted


def test_an_event_of_the_far_future_makes_no_other_late(live: Tailrace, fresh: str) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    key = f'[1,"{hour:%Y-%m-%dT%H:%M:%S}.000Z"]'

    def sent(*times: str) -> None:
        for at in times:
            json = {"movie_id": 1, "at": at}
            answer = httpx.post(f"{live.url}/topics/{live.topic}/events", json=json, timeout=30)
            assert answer.status_code == 202, answer.text

    def counted() -> object:
        return (live.row(key, f"hourly-{fresh}") or {}).get("n")

    now = hour.isoformat()
    sent(now, "9999-12-31T23:59:59Z", (hour + timedelta(hours=3)).isoformat())

    def letters() -> list[bytes]:
        found = read_topic(live.broker.address, f"{live.topic}.dead-letters")
        headers = [dict(cast(list[tuple[str, bytes]], message.headers())) for message in found]
        return [one["tailrace.views"] for one in headers if one["tailrace.error"].startswith(b"ahead: ")]

    # They come when the batch has ended, and with it the limit for late events has moved.
    eventually(lambda: letters() == [f"hourly-{fresh}".encode()] * 2, "both are dead letters")
    sent(now)
    eventually(lambda: counted() == 2, "an event of now counts")
