"""What one subscription holds, and where it would resume.

`take` returns what has changed in `rows`. A snapshot is kept apart until its `ready`, and then only the differences are
changes. So a page never shows half a view, and nothing flickers after a `reset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tailrace.client.frames import Change, Event, Gone, Progress, Ready, Reset, Row
from tailrace.client.reached import Reached

Kind = Literal["keys", "query", "feed"]
Transport = Literal["socket", "events"]
Frame = Mapping[str, Any]


class _Snapshot:
    """What has come of a snapshot that is not complete."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.positions: dict[str, str] = {}
        self.position: str | None = None


class Copy:
    """The copy of some keys, of a query (also a whole view or a stream), or the place in a feed.

    `position` is for a feed, whose events are not held: the one to continue from.
    """

    def __init__(self, kind: Kind, position: str | None = None) -> None:
        self.rows: dict[str, Any] = {}
        self.ready = False
        self._kind = kind
        self._single = False  # one position for everything, as in Server-Sent Events
        self._snapshot: _Snapshot | None = None
        self._positions: dict[str, str] = {}  # of keys, on a WebSocket
        self._reached = Reached()
        self._reached.set(position)
        self._astray = False  # whether a feed has been told that its position can't be used

    def begin(self, transport: Transport) -> dict[str, Any]:
        """A connection begins. Returns the positions that it resumes from; without any, a snapshot comes."""
        self._single = transport == "events"
        self.ready = self._astray = False
        self._snapshot = None
        resume = self._resume()
        if self._kind != "feed" and not resume:
            self._snapshot = _Snapshot()
        return resume

    def take(self, frame: Frame) -> list[Change]:
        """Take a frame in; returns the changes."""
        match frame.get("type"):
            case "row":
                return self._row(frame["key"], frame["row"], frame.get("position"))
            case "gone":
                return self._gone(frame["key"], frame.get("position"))
            case "event":
                # Another subscription to the feed may make the gateway send it once more.
                if not self._astray and self._reached.covers(frame.get("position")):
                    return []
                self._astray = False
                self._reached.set(frame.get("position"))
                return [Event(frame["event"], frame.get("position"))]
            case "ready":
                return self._complete(frame.get("position"))
            case "reset":
                self.ready = False
                self._positions = {}
                # Without a position a feed begins with new events; with a wrong one, with those that are kept.
                if self._kind == "feed":
                    self._astray = True
                else:
                    self._reached.set(None)
                    self._snapshot = _Snapshot()
                return [Reset(frame.get("reason", ""), frame.get("message", ""))]
            case "progress":
                return [Progress(frame.get("offset"), frame.get("target"))]
        return []

    def _resume(self) -> dict[str, Any]:
        if self._kind == "keys" and not self._single:
            everything = self._reached.text
            if everything is not None:
                self._positions = dict.fromkeys(self.rows, everything)
            self._reached.set(None)
            # A key that is held without a position would not be told that it has gone.
            if not self.rows or not self.rows.keys() <= self._positions.keys():
                return {}
            return {"positions": dict(self._positions)}
        if self._kind == "keys" and self._positions:
            # Positions of single keys can't be merged: what one key has seen, another may have missed.
            self._reached.set(None)
            self._positions = {}
        position = self._reached.text
        return {} if position is None else {"position": position}

    def _row(self, key: str, row: Any, position: str | None) -> list[Change]:
        (self._snapshot or self).rows[key] = row
        self._note(key, position, holds=True)
        return [] if self._snapshot else [Row(key, row)]

    def _gone(self, key: str, position: str | None) -> list[Change]:
        rows = (self._snapshot or self).rows
        had = key in rows
        rows.pop(key, None)
        self._note(key, position, holds=False)
        return [Gone(key)] if had and not self._snapshot else []

    def _note(self, key: str, position: str | None, *, holds: bool) -> None:
        snapshot = self._snapshot
        if self._single:
            if position and snapshot:
                snapshot.position = position
            elif position:
                self._reached.set(position)
        elif self._kind == "keys":
            positions = snapshot.positions if snapshot else self._positions
            # A key that holds nothing has nothing to resume: ask for it as if for the first time.
            if not holds:
                positions.pop(key, None)
            elif position:
                positions[key] = position
        elif self.ready:
            # Before `ready` the offsets of rows say nothing of the rows between them.
            self._reached.merge(position)

    def _complete(self, position: str | None) -> list[Change]:
        changes: list[Change] = []
        snapshot = self._snapshot
        if snapshot:
            changes += [Gone(key) for key in self.rows if key not in snapshot.rows]
            for key, row in snapshot.rows.items():
                if key not in self.rows or self.rows[key] != row:
                    changes.append(Row(key, row))
            # The dict stays the same object, so that its holders see the new rows.
            self.rows.clear()
            self.rows.update(snapshot.rows)
            self._positions = snapshot.positions
            self._reached.set(snapshot.position)
            self._snapshot = None
        if position and (self._single or self._kind != "keys"):
            self._reached.set(position)
        self.ready = True
        self._astray = False
        return [*changes, Ready()]
