"""Which server holds a key: what is learned from Sentinels and from nodes of a Cluster, and when it is asked anew."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from tailrace.store.connection.address import Address, Node
from tailrace.store.connection.outages import Unavailable
from tailrace.store.connection.topology import SLOTS, Topology, slot_of
from tailrace.store.layout.keys import partition_keys


def sentinels(count: int = 3) -> Topology:
    return Topology(Address.parse(f"redis+sentinel://{','.join(f's{n}:1' for n in range(count))}/m"))


def master(host: str, epoch: int) -> list[bytes]:
    return [b"name", b"m", b"ip", host.encode(), b"port", b"6379", b"config-epoch", b"%d" % epoch]


def known(topology: Topology) -> bool:
    return topology.known


def name(node: Node | None) -> str | None:
    return node.name if node is not None else None


def test_one_server_holds_every_key_and_is_never_asked() -> None:
    topology = Topology(Address.parse("redis://host:1"))
    assert known(topology) and not topology.due(1e9) and name(topology.node(b"any")) == "host:1"
    topology.doubt()
    assert known(topology)


def test_the_master_is_asked_for_at_first_after_a_doubt_and_now_and_then() -> None:
    topology = sentinels()
    assert not known(topology)
    assert topology.learn(topology.advisers(0)[0], master("a", 1), 10)
    assert known(topology) and name(topology.node(b"k")) == "a:6379"
    assert not topology.due(11) and topology.due(13)
    topology.doubt()
    assert not known(topology)


def test_a_sentinel_that_was_cut_off_does_not_bring_the_old_master_back() -> None:
    topology = sentinels()
    topology.learn(topology.advisers(0)[0], master("a", 1), 0)
    topology.learn(topology.advisers(3)[0], master("b", 2), 3)
    topology.learn(topology.advisers(6)[0], master("a", 1), 6)
    assert name(topology.node(b"k")) == "b:6379"


def test_sentinels_made_anew_are_believed_once_their_predecessors_master_fails() -> None:
    topology = sentinels()
    topology.learn(topology.advisers(0)[0], master("a", 9), 0)
    topology.doubt()
    topology.learn(topology.advisers(3)[0], master("b", 0), 3)
    assert name(topology.node(b"k")) == "b:6379"


def test_sentinels_take_turns_and_a_silent_one_comes_last() -> None:
    topology = sentinels()
    firsts = {topology.advisers(0)[0].name for _ in range(3)}
    assert firsts == {"s0:1", "s1:1", "s2:1"}
    silent = topology.advisers(0)[0]
    topology.silent(silent, 0)
    assert all(topology.advisers(1)[-1] == silent for _ in range(3))
    assert {topology.advisers(60)[0].name for _ in range(3)} == firsts


def test_a_known_master_serves_while_no_sentinel_answers() -> None:
    topology = sentinels()
    assert not topology.go_on() and not known(topology), "nothing was known"
    topology.learn(topology.advisers(0)[0], master("a", 1), 0)
    topology.doubt()
    assert topology.go_on() and name(topology.node(b"k")) == "a:6379"


def test_all_advisers_are_asked_while_nothing_is_known_and_one_to_see_whether_it_is_still_so() -> None:
    topology = sentinels()
    assert not topology.settled(0) and len(topology.to_ask(0)) == 3
    topology.learn(topology.advisers(0)[0], master("a", 1), 0)
    assert topology.settled(1) and not topology.settled(3) and len(topology.to_ask(3)) == 1
    topology.doubt()
    assert not topology.settled(1) and len(topology.to_ask(1)) == 3


def test_without_an_answer_the_last_failure_is_raised_unless_a_master_is_known() -> None:
    topology, failure = sentinels(), Unavailable("TIMEOUT", "", "", "")
    with pytest.raises(Unavailable) as caught:
        topology.make_do(failure)
    assert caught.value is failure
    topology.learn(topology.advisers(0)[0], master("a", 1), 0)
    topology.doubt()
    topology.make_do(failure)
    assert topology.settled(1) and topology.holder(b"k").name == "a:6379"


def test_a_sentinel_that_knows_no_such_master_is_no_answer() -> None:
    topology = sentinels()
    assert not topology.learn(topology.advisers(0)[0], [], 0) and not known(topology)


def cluster() -> Topology:
    return Topology(Address.parse("redis+cluster://seed:7000"))


def slots(*ranges: tuple[int, int, bytes]) -> list[list[object]]:
    return [[first, last, [host, 7000, b"id"], [b"replica", 7001, b"id"]] for first, last, host in ranges]


def test_every_key_is_found_on_the_node_that_has_its_slot() -> None:
    topology = cluster()
    assert topology.learn(topology.advisers(0)[0], slots((8000, 16383, b"b"), (0, 7999, b"a")), 0)
    for n in range(200):
        key = b"key-%d" % n
        assert name(topology.node(key)) == ("a:7000" if key_slot(key) < 8000 else "b:7000")
    assert [node.name for node in topology.nodes] == ["a:7000", "b:7000"]
    assert {node.name for node in topology.advisers(0)} == {"seed:7000", "a:7000", "b:7000"}


def test_a_slot_that_nobody_serves_is_on_no_node() -> None:
    topology = cluster()
    topology.learn(topology.advisers(0)[0], slots((0, 99, b"a"), (200, SLOTS - 1, b"b")), 0)
    missing = next(b"%d" % n for n in range(100_000) if 100 <= slot_of(b"%d" % n) < 200)
    assert topology.node(missing) is None
    with pytest.raises(Unavailable, match="no server is named by seed:7000"):
        topology.holder(missing)
    assert not known(topology), "it is asked anew"


def test_a_node_that_does_not_know_its_own_address_is_the_one_that_was_asked() -> None:
    topology = cluster()
    topology.learn(topology.advisers(0)[0], slots((0, SLOTS - 1, b"")), 0)
    assert name(topology.node(b"k")) == "seed:7000"


def test_an_answer_without_slots_changes_nothing() -> None:
    topology = cluster()
    topology.learn(topology.advisers(0)[0], slots((0, SLOTS - 1, b"a")), 0)
    assert not topology.learn(topology.advisers(0)[0], [], 1)
    assert name(topology.node(b"k")) == "a:7000"


def test_slots_are_those_that_redis_computes_and_a_partition_has_one() -> None:
    for key in (b"", b"a", b"{}b", b"a{b}c{d}", b"{x", b"x}", b"{a}{b}"):
        assert slot_of(key) == key_slot(key)
    keys = partition_keys("tailrace:movies", "rating-averages", 3)
    assert len({slot_of(key) for key in keys.all}) == 1
