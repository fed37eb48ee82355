"""Addresses: which clients are on this machine, and which are behind a proxy."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from tailrace.errors import SettingError

Networks = tuple[IPv4Network | IPv6Network, ...]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_networks(text: str) -> Networks:
    """The addresses and networks that a setting lists, separated by commas. Raises SettingError."""
    try:
        return tuple(ip_network(one.strip(), strict=False) for one in text.split(",") if one.strip())
    except ValueError as error:
        raise SettingError(f"--trusted-proxies: expected addresses such as 10.0.0.0/8, got {error}") from None


def client_address(peer: str, forwarded: str, proxies: Networks) -> str:
    """The client's address: the last one in `X-Forwarded-For` that is not a proxy of ours.

    Anybody can send the header. It counts only as far as our own proxies have written it, from the right.
    """
    if not _among(peer, proxies):
        return peer
    for address in reversed([one.strip() for one in forwarded.split(",") if one.strip()]):
        if not _among(address, proxies):
            return address if is_address(address) else peer
    return peer


def _among(address: str, networks: Networks) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
