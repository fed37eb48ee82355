"""Messages about queries, as bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.contracts.record import MAX_NUMBER
from tailrace.store.layout.message import GONE, READY, ROW, Message, QueryEvent, unpack_message

numbers = st.integers(0, MAX_NUMBER)
events = st.builds(
    QueryEvent,
    kind=st.sampled_from([ROW, GONE, READY]),
    key=st.binary(),
    generation=numbers,
    version=st.integers(-1, MAX_NUMBER),
    offset=st.integers(-1, MAX_NUMBER),
    timestamp=numbers,
    value=st.none() | st.binary(min_size=1),
)


@given(events, numbers, st.booleans())
def test_any_key_and_row_come_back(event: QueryEvent, number: int, settled: bool) -> None:
    data = b"%d %d %b" % (number, settled, event.pack())
    assert unpack_message(data) == Message(number, settled, event)


def test_the_text_is_as_documented() -> None:
    event = QueryEvent(ROW, b"a b", 1, 7, 42, 1_790_000_000_000, b'{"n":1}')
    assert event.pack() == b'row 1 7 42 1790000000000 3 a b{"n":1}'
