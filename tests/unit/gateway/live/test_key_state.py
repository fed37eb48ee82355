"""Standing: whatever order news comes in, nobody's copy goes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.gateway.live.keys.state import KeyState
from tailrace.store.layout.row import StoredRow
from tailrace.store.read.reader import KeyRead


def row(version: int, offset: int, value: bytes | None = b"{}", generation: int = 1) -> StoredRow:
    return StoredRow(generation, version, offset, 0, value)


def held(found: StoredRow | None, offset: int | None, *, whole: bool = True) -> KeyRead:
    return KeyRead(found, offset, whole, -1)


def settled(found: StoredRow | None, offset: int) -> KeyState:
    standing = KeyState()
    assert not standing.learn(held(found, offset)), "the first whole read is for the snapshot, not news"
    assert standing.settled
    return standing


def test_a_higher_version_is_news_even_at_a_lower_offset() -> None:
    standing = settled(row(5, 100), 100)
    assert standing.offer(row(6, 90))


def test_an_older_version_at_a_newer_offset_is_not_news() -> None:
    standing = settled(row(5, 10), 20)
    assert not standing.offer(row(4, 30)) and not standing.offer(row(5, 31))
    assert standing.row == row(5, 10)


def test_a_new_generation_is_news_whatever_its_version() -> None:
    assert settled(row(5, 10), 20).offer(row(1, 30, generation=2))


def test_a_tombstone_is_a_version_too() -> None:
    standing = settled(row(5, 10), 20)
    assert standing.offer(row(6, 30, None)) and not standing.present
    assert not standing.offer(row(5, 31)) and not standing.offer(row(6, 32, None))
    assert standing.offer(row(7, 33)) and standing.present


def test_of_one_version_a_row_stands_above_a_tombstone() -> None:
    standing = settled(row(5, 10), 20)
    assert standing.offer(row(6, 30, None))
    assert standing.offer(row(6, 31)) and standing.present
    assert not standing.offer(row(6, 32, None)) and standing.present


def test_a_row_published_before_the_snapshot_arrives_is_kept() -> None:
    standing = KeyState()
    assert not standing.offer(row(7, 21)) and not standing.offer(row(6, 20))
    standing.learn(held(row(5, 10), 15))
    assert standing.row == row(7, 21) and standing.offset == 21


def test_nothing_is_settled_by_a_partition_that_is_not_whole() -> None:
    standing = KeyState()
    standing.offer(row(9, 900))
    for found in (held(None, None, whole=False), held(row(3, 3), 4, whole=False)):
        assert not standing.learn(found) and not standing.settled
    # What was heard of another changelog before must not survive the first read of this one.
    standing.learn(held(row(1, 1), 2))
    assert standing.row == row(1, 1)


def test_a_key_missing_during_a_restore_is_not_gone() -> None:
    standing = settled(row(5, 10), 20)
    assert not standing.learn(held(None, None, whole=False))
    assert not standing.learn(held(None, 3, whole=False))
    assert not standing.learn(held(None, 30, whole=False))
    assert standing.present


def test_a_key_missing_from_a_store_that_is_behind_is_not_gone() -> None:
    standing = settled(row(5, 10), 20)
    assert not standing.learn(held(None, 9)) and standing.present


def test_a_key_missing_from_a_whole_store_is_gone_once() -> None:
    standing = settled(row(5, 10), 20)
    assert standing.learn(held(None, 25)) and not standing.present and standing.offset == 25
    assert not standing.learn(held(None, 26))
    assert not standing.offer(row(4, 12)), "it was seen to hold nothing up to 26"
    assert standing.offer(row(1, 27))


def test_an_absent_key_is_not_brought_back_by_a_restore() -> None:
    standing = settled(None, 50)
    assert not standing.offer(row(3, 30)) and not standing.offer(row(4, 50, None))
    assert standing.offer(row(5, 51))


class Model:
    """One key's changelog, a store that can be lost and restored, and what a client was told."""

    def __init__(self) -> None:
        self.log: list[StoredRow] = []
        self.stored: StoredRow | None = None
        self.offset = -1
        self.target = -1
        self.standing = KeyState()
        self.told: list[StoredRow] = []
        self.published: list[StoredRow] = []

    def write(self, version: int, gone: bool) -> None:
        self.log.append(row(version, len(self.log), None if gone else b"{}"))

    def materialize(self) -> None:
        if self.offset + 1 < len(self.log):
            self.offset += 1
            change = self.log[self.offset]
            if self.stored is None or change.rank > self.stored.rank:
                self.stored = change
                self.published.append(change)

    def lose(self) -> None:
        self.stored, self.offset, self.target = None, -1, len(self.log) - 1

    def hear(self, lost: bool) -> None:
        if self.published:
            change = self.published.pop(0)
            if not lost and self.standing.offer(change):
                self.told.append(change)

    def sweep(self) -> None:
        was_settled = self.standing.settled
        news = self.standing.learn(KeyRead(self.stored, self.offset, self.offset >= self.target, self.target))
        if self.standing.row is not None and (news or (not was_settled and self.standing.settled)):
            self.told.append(self.standing.row)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 8), st.booleans()),
        st.tuples(st.just("materialize")),
        st.tuples(st.just("hear"), st.booleans()),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("lose")),
    ),
    max_size=60,
)


@given(steps)
def test_through_loss_and_restore_versions_rise_and_in_the_end_all_is_told(script: list[tuple[object, ...]]) -> None:
    model = Model()
    for name, *arguments in script:
        getattr(model, str(name))(*arguments)
    for _ in model.log:
        model.materialize()
    model.sweep()
    ranks = [told.rank for told in model.told]
    assert ranks == sorted(set(ranks)), "strictly rising"
    if model.log:
        highest = max(change.rank for change in model.log)
        assert model.standing.row is not None and model.standing.row.rank == highest
        assert model.told and model.told[-1].rank == highest
