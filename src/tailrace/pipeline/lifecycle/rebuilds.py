"""Rebuilds: next generations of views, built beside what readers have, and handed over when they are complete.

A view is built together with the views that read it: these read its next generation, and all are handed over at one
moment. Each build goes through the same steps, a view before those that read it:

1. catch up: micro-batches on everything that is there. What readers have goes on meanwhile.
2. catch up once more, on what has come while the others were built.
3. finish: what readers have is stopped, and one last round reads what it has read. So nothing goes back.
4. hand over: one record of the catalog names all of them. A crash before it leaves the old generations, and the builds
   go on from their checkpoints; a crash after it leaves the new ones.

One build runs at a time: they share the task slots that are kept free for one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.errors import Unreachable
from tailrace.pipeline.lifecycle.generations import Build
from tailrace.pipeline.lifecycle.query import Query

log = logging.getLogger(__name__)

_FINISH = 2
_LATER = 5.0

HandOver = Callable[[Mapping[str, tuple[Build, Query]]], None]


@dataclass
class _Rebuild:
    """One view: its build, the views that it reads, the step that it is at, and whether that was begun."""

    build: Build
    query: Query
    parents: Sequence[str]
    step: int = 0
    begun: bool = False


class Rebuilds:
    """Every build that is under way. `watch` is to be called about once a second."""

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over
        self._builds: dict[str, _Rebuild] = {}
        self._not_before = 0.0

    @property
    def count(self) -> int:
        """How many views are being built."""
        return len(self._builds)

    @property
    def under_way(self) -> bool:
        """Whether anything is being built."""
        return bool(self._builds)

    def queries(self) -> list[Query]:
        """The queries of all builds."""
        return [one.query for one in self._builds.values()]

    def add(self, name: str, query: Query, build: Build, parents: Sequence[str]) -> None:
        """Begin a build; the views that it reads, as far as they are built anew, are added before it."""
        self._builds[name] = _Rebuild(build, query, parents)

    def give_up(self, name: str) -> None:
        """Stop a build that another one is to take the place of."""
        if (one := self._builds.pop(name, None)) is not None:
            one.query.stop()

    def stop(self) -> None:
        """Stop every build; each goes on from its checkpoint."""
        for name in list(self._builds):
            self.give_up(name)

    def watch(self, served: Mapping[str, Query]) -> None:
        """Bring the builds on; `served` is what readers have."""
        running = next((one for one in self._builds.values() if one.query.running), None)
        if running is not None:
            running.query.watch()
            return
        for group in self._groups():
            if self._tend(group, served):
                return

    def _groups(self) -> list[list[str]]:
        """The views that are handed over together, each after those that it reads."""
        groups: list[list[str]] = []
        for name, one in self._builds.items():
            related = [group for group in groups if any(parent in group for parent in one.parents)]
            groups = [group for group in groups if group not in related]
            groups.append([*(member for group in related for member in group), name])
        return groups

    def _tend(self, group: Sequence[str], served: Mapping[str, Query]) -> bool:
        """Do what is next for a group; True if a build runs then."""
        step = min(self._builds[name].step for name in group)
        if step > _FINISH:
            self._finish(group)
            return False
        if step == _FINISH:
            for name in group:
                if served[name] is not self._builds[name].query:
                    served[name].rest()
        for name in group:
            one = self._builds[name]
            if one.step > step:
                continue
            if not one.begun:
                one.query.go_on()
                one.begun = True
            if one.query.resting:
                if step == _FINISH or one.query.near:
                    one.step, one.begun = step + 1, False
                    continue
                one.query.go_on()
            one.query.watch()
            if step == _FINISH and one.query.failed:
                self._go_back(group, served)
            return one.query.running
        return False

    def _go_back(self, group: Sequence[str], served: Mapping[str, Query]) -> None:
        """A last round has failed: what readers have goes on until the builds are well again."""
        for name in group:
            self._builds[name].step, self._builds[name].begun = _FINISH - 1, False
            if served[name] is not self._builds[name].query:
                served[name].go_on()

    def _finish(self, group: Sequence[str]) -> None:
        if time.monotonic() < self._not_before:
            return
        builds = {name: (self._builds[name].build, self._builds[name].query) for name in group}
        try:
            self._hand_over(builds)
        except Unreachable as error:
            self._not_before = time.monotonic() + _LATER
            log.error("%s can't be handed over now: %s", " and ".join(group), error)
            return
        for name in group:
            del self._builds[name]
