"""Which events of a client's feed were passed on: the rules that write every event once and in order.

News comes from three sides in any order: published events, pages read for clients that come in or were slow,
and the check of registrations. A published event says after which offset its client had no other. So each
message proves by itself that nothing was lost before it. A message that does not is dropped, and what is
missing is read from the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tailrace.store.layout.row import StoredRow
from tailrace.store.read.feed_histories import Heard, Page, Registration


class Check(Enum):
    """What the registration says about what was passed on."""

    FINE = "nothing is missing"
    GAP = "an event was not heard: read it"
    MISSED = "what comes next is no longer kept"
    LOST = "the store is whole, and has not reached what was passed on"
    WAIT = "the store is being restored"


class FeedState:
    """What was passed on to live followers.

    `front` is the offset up to which they have everything; None while no follower is live. `behind` is the
    highest offset that was heard of: if it is above the front, there is a gap.
    """

    __slots__ = ("behind", "front")

    def __init__(self) -> None:
        self.front: int | None = None
        self.behind = -1

    @property
    def gap(self) -> bool:
        """Whether something must be read before anything can be passed on."""
        return self.front is not None and self.behind > self.front

    def begin(self, reached: int) -> None:
        """The first follower is live, and has everything up to an offset."""
        self.front = reached

    def end(self) -> None:
        """No follower is live any more."""
        self.front = None

    def offer(self, heard: Heard) -> bool:
        """Take in a message; True if its event must be passed on."""
        offset = heard.event.offset
        self.behind = max(self.behind, offset)
        if self.front is None or offset <= self.front or heard.before > self.front:
            return False
        self.front = offset
        return True

    def learn(self, after: int, page: Page) -> Sequence[StoredRow]:
        """Take in a page that was read after an offset; returns the events to pass on.

        A page that begins beyond the front says nothing about the events between.
        """
        if self.front is None or max(after, page.start) > self.front:
            return ()
        news = [event for event in page.events if event.offset > self.front]
        self.front = max(self.front, page.reached)
        return news

    def settle(self, behind: int) -> bool:
        """Everything that was heard of up to `behind` has been read; True if more was heard meanwhile.

        If an event that was heard of is not there, the store has lost it: reading again does not help.
        """
        if self.front is None:
            return False
        if self.behind > max(behind, self.front):
            return True
        self.behind = self.front
        return False

    def check(self, asked: int | None, listener: Registration) -> Check:
        """Take in the registration, which was asked for when the front was at `asked`."""
        if self.front is None or asked is None:
            return Check.FINE
        if not listener.whole or listener.offset is None or listener.start is None or listener.last is None:
            return Check.WAIT
        if listener.offset < asked:
            return Check.LOST
        if listener.start > self.front:
            return Check.MISSED
        if listener.last > self.front:
            self.behind = max(self.behind, listener.last)
            return Check.GAP
        self.front = max(self.front, listener.offset)
        return Check.FINE
