"""Sentinels and nodes of a Cluster fail while records flow; then Redis holds what the changelog says."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from flowing import Load, assert_whole, flowing, following, offsets, says
from materializing import PARTITIONS, Changelog
from redis_topologies import Cluster, Watched, paused
from running import eventually
from services import NewRedis
from tailrace.store.layout.keys import partition_keys

TLS = pytest.mark.campaign("the ordinary run has it without TLS")


@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=TLS)], ids=["plain", "behind TLS"])
def test_sentinels_promote_a_replica_that_lags(log: Changelog, load: Load, tmp_path: Path, tls: bool) -> None:
    watched = Watched(tmp_path, tls=tls)
    try:
        with flowing(log, load, watched.url) as materializer, following(log, watched.url, tmp_path) as versions:
            with paused(watched.replica):
                # What is under way to the replica would still reach it: the link is cut.
                redis.Redis.from_url(watched.master.url).client_kill_filter(_type="replica")
                there = offsets(log, watched.master.url)
                load.flow()
                eventually(lambda: offsets(log, watched.master.url) > there, "the replica lacks something")
                watched.master.kill()
            eventually(lambda: watched.master_port() == watched.known_as(watched.replica), "the replica is the master")
            load.flow()
            assert_whole(log, load, watched.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
            # The old master comes back as a replica, and nobody believes it.
            watched.master.start()
            assert_whole(log, load, watched.url, materializer)
    finally:
        watched.stop()


def test_sentinels_name_another_master_while_the_old_one_goes_on_answering(
    log: Changelog, load: Load, new_redis: NewRedis, tmp_path: Path
) -> None:
    watched, other = Watched(tmp_path), new_redis()
    try:
        with flowing(log, load, watched.url) as materializer, following(log, watched.url, tmp_path) as versions:
            watched.name(other)
            load.flow()
            assert_whole(log, load, other.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
    finally:
        watched.stop()


def test_nodes_of_a_cluster_killed_and_restarted(log: Changelog, load: Load, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        with flowing(log, load, cluster.url) as materializer, following(log, cluster.url, tmp_path) as versions:
            # The node that the gateway's link is on at first, and the one that has the row it follows.
            for node in {cluster.nodes[0], cluster.holder(log.keys(b"0").position)}:
                node.kill()
                says(materializer, "Redis")
                load.flow()
                node.start()
                cluster.wait_well()
                load.flow()
            assert_whole(log, load, cluster.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
    finally:
        cluster.stop()


def test_slots_of_a_cluster_moved_while_records_flow(log: Changelog, load: Load, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        with flowing(log, load, cluster.url) as materializer, following(log, cluster.url, tmp_path) as versions:
            for number in range(PARTITIONS):
                key = partition_keys(log.prefix, log.view, number).position
                at = cluster.nodes.index(cluster.holder(key))
                cluster.move(key, cluster.nodes[(at + 1) % 3])
                load.flow()
            assert_whole(log, load, cluster.url, materializer)
            eventually(lambda: versions()[-1:] == [load.rows[b"0"][1]], "the client has the last version")
    finally:
        cluster.stop()
