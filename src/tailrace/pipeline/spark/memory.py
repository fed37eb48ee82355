"""The memory of Spark's JVM: enough for the longest records that the topics of an app take, and bounds for its state.

Each projection of a task keeps a buffer of up to twice the longest row that it has seen, until its batch ends; a
micro-batch with state sorts rows beside the heap, where each task has its share. State is on disk; RocksDB's buffers
and caches of all views together have one bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import sysconf
from pathlib import Path

from tailrace.declarations.app import App
from tailrace.pipeline.source.reading import readings
from tailrace.pipeline.spark.java_options import given_options
from tailrace.pipeline.view.plan import state_stages

_MEGABYTE = 1024 * 1024
# What a pipeline holds without long records.
_QUIET = 400
# How often a task holds the longest record of its batch: to read, decode and send it on, or, in a task with state, to
# compare it with what is there, keep it, and write the row.
_COPIES = 16
_COPIES_OF_STATE = 24
# A task that sorts can count on half of its share, and needs room for two rows.
_COPIES_SORTED = 4
# Megabytes for each partition of a state: half of it are buffers of what is written, the rest caches what is read.
_STORE = 128
# What heap, sorting and state may have of a machine or container: beside them are threads, code and buffers.
_SHARES = (0.5, 0.2, 0.15)
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# Spark tells Java the size of the heap itself, and so overrides what else the environment says of it.
_HEAP_CHOSEN = re.compile(r"driver[-.]memory")
# In a heap of the usual size, of 1 GB, this collector takes a sixth less processor time than the JVM's own choice.
_COLLECTOR = "-XX:+UseParallelGC"
_COLLECTOR_CHOSEN = re.compile(r"-XX:\+Use\w+GC")


@dataclass(frozen=True)
class Memory:
    """Megabytes of the heap, of what is sorted beside it, and of what RocksDB holds of the state; at most, if needed.

    The defaults are Spark's own, what sorts a backlog of short records without a disk, and a view or two with state.
    """

    heap: int = 1024
    sorting: int = 512
    state: int = 256


def needed(app: App, longest: Mapping[str, int], partitions: Mapping[str, int], state: int) -> Memory:
    """What an app needs where each task has one of the longest records that its topic takes; the usual at least.

    longest: the bytes of such a record, by topic; records of others are short. partitions: of the same topics.
    state: partitions of a view's state.
    """
    usual, (held, sorting) = Memory(), _held(app, longest, partitions, state)
    # A view that is built anew has the state of two.
    stages = [state_stages(output, readings(output, {})) for output in app.outputs]
    stores = (sum(stages) + max(stages, default=0)) * state
    return Memory(
        max(usual.heap, _QUIET + _megabytes(held)),
        max(usual.sorting, _megabytes(sorting)),
        max(usual.state, stores * _STORE),
    )


def least_heap(app: App, longest: Mapping[str, int]) -> int:
    """The megabytes of heap without which one such record at a time may end the JVM."""
    return _QUIET + _megabytes(_held(app, longest, dict.fromkeys(longest, 1), 1)[0])


def _held(app: App, longest: Mapping[str, int], partitions: Mapping[str, int], state: int) -> tuple[int, int]:
    """The bytes that all tasks hold in the heap, and that they sort."""
    read = {name: size * partitions[name] * _COPIES for name, size in longest.items()}
    # Topics are searched for dead letters side by side.
    held, sorting = sum(read.values()), 0
    for output in app.outputs:
        names = [source.name for _, source in output.sources if source.name in longest]
        stages = state_stages(output, readings(output, {}))
        held += sum(read[name] for name in names)
        if names and stages:
            row = max(longest[name] for name in names)
            held += row * state * stages * _COPIES_OF_STATE
            sorting += row * max(state, sum(partitions[name] for name in names)) * _COPIES_SORTED
    return held, sorting


def granted(wanted: Memory, machine: int) -> Memory:
    """What of it is taken on a machine with so many megabytes; the usual at least."""
    usual = Memory()
    heap, sorting, state = (int(machine * share) for share in _SHARES)
    return Memory(
        max(usual.heap, min(wanted.heap, heap)),
        max(usual.sorting, min(wanted.sorting, sorting)),
        max(usual.state, min(wanted.state, state)),
    )


def heap_is_chosen(environment: Mapping[str, str]) -> bool:
    """Whether the user has said how large the heap is."""
    return bool(environment.get("SPARK_DRIVER_MEMORY") or _HEAP_CHOSEN.search(given_options(environment)))


def collector(environment: Mapping[str, str]) -> list[str]:
    """The JVM's option for its garbage collector; none if the user has chosen one, or the size of the heap.

    A JVM with two collectors in its options does not start.
    """
    chosen = heap_is_chosen(environment) or _COLLECTOR_CHOSEN.search(given_options(environment))
    return [] if chosen else [_COLLECTOR]


def of_machine() -> int:
    """The megabytes that this process may use, of a container's if there is one."""
    found = [sysconf("SC_PAGE_SIZE") * sysconf("SC_PHYS_PAGES")]
    for limit in _LIMITS:
        with suppress(OSError, ValueError):
            found.append(int(Path(limit).read_text()))
    return min(found) // _MEGABYTE


def too_little(least: int, found: int, longest: Mapping[str, int]) -> str | None:
    """The warning if one long record may fill the heap; None if it is large enough."""
    # A JVM does not count a part of its heap that it uses by turns.
    if found >= least * 0.8:
        return None
    topic, size = max(longest.items(), key=lambda item: item[1])
    return (
        f"topic {topic} takes records of up to {size / 1e6:.0f} MB: for these expected a heap of {least} MB at least, "
        f"got {found} MB. A record that fills it ends the pipeline. Give it more, such as "
        f"SPARK_DRIVER_MEMORY={least}m, or lower the topic's max.message.bytes"
    )


def _megabytes(size: int) -> int:
    return -(-size // _MEGABYTE)
