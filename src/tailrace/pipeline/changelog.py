"""From a source topic to a changelog: the whole plan of a view, ready to be started."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.pipeline import plans
from tailrace.pipeline.builds import Build

_CATCH_UP_BATCH = 500_000


@dataclass(frozen=True)
class Reach:
    """What a query needs to know of the world: brokers, consumer group prefix, length of a batch."""

    servers: str
    group: str
    batch_seconds: float


def changelog_writer(
    session: SparkSession, build: Build, reach: Reach, *, rehearsal: bool = False, catch_up: bool = False
) -> DataStreamWriter:
    """The whole plan of a view, from the source topic to the changelog.

    rehearsal: read the newest records only and write nothing.
    catch_up: run micro-batches on what is there now, then end.
    """
    view = build.view
    name = f"rehearsal of {view.name}" if rehearsal else view.name
    at_most = _CATCH_UP_BATCH if catch_up else None
    group = f"{reach.group}.{view.name}"
    records = plans.read(session, reach.servers, view.source, group, newest=rehearsal, at_most=at_most)
    schema = plans.value_schema(session, view.source)
    decoded = plans.observe(plans.decode(records, schema, view), name)
    view_rows = plans.rows(plans.events(decoded), view)
    if rehearsal:
        view_rows = view_rows.where(plans.never())
    changes = plans.changes(view_rows, view, build.generation)
    writer = plans.write(changes, reach.servers, view.changelog).option("checkpointLocation", str(build.checkpoint))
    writer = writer.queryName(name)
    if catch_up:
        return writer.trigger(availableNow=True)
    interval = f"{round(reach.batch_seconds * 1000)} milliseconds"
    # PySpark takes this keyword; its types do not know it yet.
    return writer.trigger(realTime=interval)  # type: ignore[call-overload, no-any-return]
