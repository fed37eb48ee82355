"""Which server holds a key, as far as is known. No I/O.

One server holds everything. Sentinels are asked for the master. Any node of a Cluster knows which node has
which slots. Unless the topology is `settled`, its user asks the advisers `to_ask` in their order until
`learn` says that an answer will do; if none does, it calls `make_do`. It calls `doubt` when a server could
not be used: then it asks anew. What was learned from Sentinels is asked again every few seconds, because a
master that they have replaced may go on answering; a Cluster's node says so itself.
"""

from __future__ import annotations

from binascii import crc_hqx
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.store.connection.address import Address, Node
from tailrace.store.connection.outages import CODES, Unavailable

SLOTS = 16384
ASK_AGAIN = 2.0
# A Sentinel that did not answer is not asked again for this long, unless no other one answers.
_PUT_OFF = 30.0


class Topology:
    """Where everything is. Times are in seconds, of a clock that never goes back."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.question: tuple[str, ...] = ()
        self._put_off: dict[Node, float] = {}
        self._turn = 0
        self._epoch = -1
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._nodes: list[Node] = []
        self._known = address.kind == "server"
        self._asked_at = 0.0
        if self._known:
            self._nodes = list(address.seeds)
        elif address.kind == "sentinel":
            self.question = ("SENTINEL", "MASTER", address.master)
        else:
            self.question = ("CLUSTER", "SLOTS")

    @property
    def known(self) -> bool:
        """Whether it is known which server holds a key."""
        return self._known

    @property
    def nodes(self) -> list[Node]:
        """All servers that hold data, each once."""
        return list(dict.fromkeys(self._nodes))

    def due(self, now: float) -> bool:
        """Whether an adviser should be asked, although something is known."""
        return self.address.kind == "sentinel" and self._known and now >= self._asked_at + ASK_AGAIN

    def settled(self, now: float) -> bool:
        """Whether a command can be sent without asking anybody first."""
        return self._known and not self.due(now)

    def to_ask(self, now: float) -> list[Node]:
        """The advisers to ask before a command, in this order: one if something is known, otherwise all."""
        return self.advisers(now)[: 1 if self._known else None]

    def advisers(self, now: float) -> list[Node]:
        """Everybody who may be asked: each time another one comes first, and last those that did not answer."""
        seeds = list(self.address.seeds)
        if self.address.kind == "cluster":
            seeds = list(dict.fromkeys([*self._nodes, *seeds]))
        self._turn += 1
        turned = seeds[self._turn % len(seeds) :] + seeds[: self._turn % len(seeds)]
        return sorted(turned, key=lambda node: self._put_off.get(node, 0.0) > now)

    def silent(self, adviser: Node, now: float) -> None:
        """An adviser did not answer."""
        self._put_off[adviser] = now + _PUT_OFF
        self._asked_at = now

    def learn(self, adviser: Node, answer: Any, now: float) -> bool:
        """Take in an answer; False if it does not say where everything is."""
        self._put_off.pop(adviser, None)
        self._asked_at = now
        found = self._learn_slots(adviser, answer) if self.question[0] == "CLUSTER" else self._learn_master(answer)
        self._known |= found
        return found

    def doubt(self) -> None:
        """What is known may be wrong: it is asked for before the next command."""
        if self.address.kind != "server":
            self._known, self._epoch = False, -1

    def go_on(self) -> bool:
        """No adviser answers: a master that was known before may still be there, whatever became of the Sentinels."""
        self._known = self.address.kind == "sentinel" and bool(self._nodes)
        return self._known

    def make_do(self, failure: Unavailable | None) -> None:
        """Go on with what is known, because none of the advisers that were asked has said more.

        If nothing is known, raises what the last of them failed with.
        """
        if not self._known and not self.go_on():
            raise failure or self._nowhere()

    def node(self, key: bytes) -> Node | None:
        """The server that holds a key; None if no server has its slot."""
        if not self._starts:
            return self._nodes[0] if self._nodes else None
        slot = slot_of(key)
        at = bisect_right(self._starts, slot) - 1
        return self._nodes[at] if at >= 0 and slot <= self._ends[at] else None

    def holder(self, key: bytes) -> Node:
        """The server that holds a key; if there is none, doubts what is known and raises Unavailable."""
        node = self.node(key)
        if node is None:
            self.doubt()
            raise self._nowhere()
        return node

    def _nowhere(self) -> Unavailable:
        asked = ", ".join(seed.name for seed in self.address.seeds)
        return Unavailable("CLUSTERDOWN", *CODES["CLUSTERDOWN"], f"no server is named by {asked}")

    def _learn_master(self, answer: Any) -> bool:
        pairs = answer if isinstance(answer, Mapping) else dict(zip(answer[::2], answer[1::2], strict=False))
        fields = {_text(name): _text(value) for name, value in pairs.items()}
        host, port, epoch = fields.get("ip", ""), int(fields.get("port", 0)), int(fields.get("config-epoch", 0))
        if not host or not port:
            return False
        # A Sentinel that was cut off names the master of before.
        if epoch >= self._epoch:
            self._epoch = epoch
            self._nodes = [self.address.node(host, port)]
        return True

    def _learn_slots(self, adviser: Node, answer: Sequence[Any]) -> bool:
        own = adviser.name.rpartition(":")[0].strip("[]")
        found = []
        for first, last, master, *_ in answer:
            host = _text(master[0] or b"")
            # A node that does not know its own address leaves it out.
            found.append((int(first), int(last), self.address.node(host if host not in ("", "?") else own, master[1])))
        if not found:
            return False
        found.sort(key=lambda one: one[0])
        self._starts = [first for first, _, _ in found]
        self._ends = [last for _, last, _ in found]
        self._nodes = [node for _, _, node in found]
        return True


def slot_of(key: bytes) -> int:
    """The slot of a key in a Cluster: that of its hash tag if it has one."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


def _text(value: bytes | str | int) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
