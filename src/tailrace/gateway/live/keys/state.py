"""What a key holds, as far as this gateway has heard: the rules that keep every client's copy from going back.

News comes from three sides in any order: published rows, the snapshot reads of clients that come in, and the
sweep. A row is news if its (generation, version) is higher than that of the row before. Offsets do not
decide: after a crash of the pipeline the changelog has older versions at newer offsets. If the key holds
nothing, there is no version to compare with. Then a row is news if it was written after the offset up to
which the key is known to hold nothing.
"""

from __future__ import annotations

from tailrace.store.layout.row import StoredRow
from tailrace.store.read.reader import KeyRead


class KeyState:
    """The newest row of one key, or its absence, and the offset up to which that is known."""

    __slots__ = ("_early", "offset", "row", "settled")

    def __init__(self) -> None:
        self.row: StoredRow | None = None
        self.offset = -1
        self.settled = False
        self._early: StoredRow | None = None

    @property
    def present(self) -> bool:
        return self.row is not None and self.row.value is not None

    def offer(self, row: StoredRow) -> bool:
        """Take in a published row; True if it is news for the followers.

        Before the first whole read nothing is news; the newest row is kept until then.
        """
        if self.settled:
            return self._accept(row)
        if self._early is None or row.rank > self._early.rank:
            self._early = row
        return False

    def learn(self, held: KeyRead) -> bool:
        """Take in what a read found; True if it is news for the followers.

        A key that is missing while its partition is being restored is not gone. A key that is missing from a
        whole partition is gone: its tombstone was compacted away before Redis was restored.
        """
        if not self.settled:
            self._settle(held)
            return False
        if held.row is not None:
            return self._accept(held.row)
        if held.offset is None or not held.whole or held.offset < self.offset:
            return False
        self.offset = held.offset
        if not self.present:
            return False
        self.row = None
        return True

    def _settle(self, held: KeyRead) -> None:
        early, self._early = self._early, None
        if held.offset is None or not held.whole:
            # What was published so far is in the next read, or came from a changelog that no longer exists.
            return
        self.row, self.offset, self.settled = held.row, held.offset, True
        if early is not None:
            self._accept(early)

    def _accept(self, row: StoredRow) -> bool:
        newer = row.rank > self.row.rank if self.row is not None else row.offset > self.offset
        if newer:
            self.row = row
            self.offset = max(self.offset, row.offset)
        return newer
