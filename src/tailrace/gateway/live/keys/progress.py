"""How far the changes of one partition were heard, and whether none was missed.

The store publishes the changes of a partition in the order of their offsets. So a gateway that hears the
change at an offset has heard everything below it, if no message was lost. That is in doubt after the pub/sub
link was replaced, and while the store is being restored: then an offset comes that is not above the last one,
or a read says so. The doubt ends when the sweep has read every followed key of the whole partition again, in
a pass that began after it.
"""

from __future__ import annotations


class PartitionProgress:
    """One partition of one build of a view. `heard` is the offset of the last change that was published."""

    __slots__ = ("__weakref__", "_checked", "_doubts", "heard")

    def __init__(self) -> None:
        self.heard = -1
        self._doubts = 0
        self._checked = 0

    @property
    def sure(self) -> bool:
        """Whether everything up to `heard` is known here."""
        return self._checked == self._doubts

    def hear(self, offset: int) -> None:
        """A change was published."""
        if offset <= self.heard:
            self._doubts += 1
        self.heard = offset

    def doubt(self) -> None:
        """Messages may have been lost."""
        self._doubts += 1

    def note(self) -> int:
        """What a pass of the sweep notes when it begins, for `check`."""
        return self._doubts

    def check(self, note: int) -> None:
        """A pass has read every followed key of the partition, which was whole."""
        self._checked = max(self._checked, note)
