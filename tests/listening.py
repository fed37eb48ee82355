"""What processes listen on, by `/proc`."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import reduce
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_LISTEN = "0A"
# A server that moves to loopback at once is elsewhere for less than one look.
_LOOKS = 5


def listening(pid: int) -> set[tuple[str, str, int]]:
    """The sockets on which a process takes connections: inode, address and port; none of one that has ended."""
    inodes, found = set(), set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(str(descriptor.readlink()))
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                if state == _LISTEN and f"socket:[{inode}]" in inodes:
                    host, port = local.split(":")
                    found.add((inode, str(_address(host)), int(port, 16)))
    return found


def reachable(pids: Collection[int]) -> set[tuple[str, str, int]]:
    """Those sockets of some processes that other machines reach."""
    looks = [
        {one for pid in pids for one in listening(pid) if not ip_address(one[1]).is_loopback} for _ in range(_LOOKS)
    ]
    return reduce(set.__and__, looks)


def _address(text: str) -> IPv4Address | IPv6Address:
    """An address as the kernel writes it: words of four bytes, each in the machine's order."""
    raw = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    found = ip_address(raw)
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
