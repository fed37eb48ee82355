"""What was passed on of a client's feed: the rules by which every event is written once and in order.

News comes from three sides in any order: published events, pages read for clients that come in or were slow, and the
check of registrations. A published event says after which offset its client had nothing else. So each message proves by
itself that nothing was lost before it; one that does not is dropped, and what is missing is read from the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tailrace.store.layout.row import StoredRow
from tailrace.store.read.feed_histories import Heard, Page, Registration


class Check(Enum):
    """What a look at the registration says of what was passed on."""

    FINE = "nothing is missing"
    GAP = "an event was not heard: read it"
    MISSED = "what comes next is no longer kept"
    LOST = "the store is whole, and has not reached what was passed on"
    WAIT = "the store is being restored"


class FeedState:
    """What was passed on to live followers.

    `front` is the offset up to which they have everything; None while nobody follows live. `behind` is the highest
    offset that was heard of: if it is above the front, there is a gap.
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
        """The first one follows live, and has everything up to an offset."""
        self.front = reached

    def end(self) -> None:
        """Nobody follows live any more."""
        self.front = None

    def offer(self, heard: Heard) -> bool:
        """Take in a message; True if its event is to be passed on."""
        offset = heard.event.offset
        self.behind = max(self.behind, offset)
        if self.front is None or offset <= self.front or heard.before > self.front:
            return False
        self.front = offset
        return True

    def learn(self, after: int, page: Page) -> Sequence[StoredRow]:
        """Take in a page that was read after an offset; returns what is to be passed on.

        A page that begins beyond the front says nothing of what is between.
        """
        if self.front is None or max(after, page.start) > self.front:
            return ()
        news = [event for event in page.events if event.offset > self.front]
        self.front = max(self.front, page.reached)
        return news

    def settle(self, behind: int) -> bool:
        """Everything was read that was heard of up to `behind`; True if more was heard meanwhile.

        What was heard of and is not there any more, the store has lost: reading again does not help.
        """
        if self.front is None:
            return False
        if self.behind > max(behind, self.front):
            return True
        self.behind = self.front
        return False

    def check(self, asked: int | None, listener: Registration) -> Check:
        """Take in the answer of a registration, asked for when the front was at `asked`."""
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
