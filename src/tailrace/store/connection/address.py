"""Where Redis is: what the setting `redis` says.

    redis://[user:password@]host:6379/0                              one server
    unix://[user:password@]/run/redis.sock                           the same, over a socket file
    redis+sentinel://[user:password@]h1:26379,h2:26379/<master>/0    the server that the Sentinels name
    redis+cluster://[user:password@]h1:7000,h2:7001                  a Cluster; any of its nodes leads to the others

`rediss` instead of `redis` uses TLS, for Sentinels too. Options follow as a query, with the names of
redis-py, such as `ssl_ca_certs`; `sentinel_username` and `sentinel_password` are for the Sentinels alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode

Kind = Literal["server", "sentinel", "cluster"]

EXPECTED = (
    "a URL such as redis://localhost:6379/0, rediss://host:6380/0, unix:///run/redis.sock, "
    "redis+sentinel://host1:26379,host2:26379/mymaster/0 or redis+cluster://host1:7000,host2:7001"
)
_SCHEMES: dict[str, tuple[Kind, str, int]] = {
    "redis": ("server", "redis", 6379),
    "rediss": ("server", "rediss", 6379),
    "unix": ("server", "unix", 0),
    "redis+sentinel": ("sentinel", "redis", 26379),
    "rediss+sentinel": ("sentinel", "rediss", 26379),
    "redis+cluster": ("cluster", "redis", 6379),
    "rediss+cluster": ("cluster", "rediss", 6379),
}
# The standard library can't read a list of hosts that has an IPv6 address in it.
_URL = re.compile(r"(?P<scheme>[A-Za-z+]+)://(?P<hosts>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\],/@]+)(?::([0-9]{1,5}))?", re.ASCII)
_SENTINEL_OPTIONS = frozenset(("sentinel_username", "sentinel_password"))
_TLS_OPTIONS = frozenset(
    (
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_password",
        "ssl_cert_reqs",
        "ssl_check_hostname",
        "ssl_ciphers",
    )
)
_NUMBERS = frozenset(("db", "protocol", "socket_timeout", "socket_connect_timeout", "max_connections"))
_OPTIONS = _NUMBERS | {"username", "password", "client_name", "socket_keepalive"}


class NotAnAddress(ValueError):
    """The text is no address of a Redis. The message says what was expected, and never holds a password."""


@dataclass(frozen=True)
class Node:
    """One server: its name for messages, and the URL that clients connect to."""

    name: str
    url: str = field(repr=False, compare=False)


@dataclass(frozen=True)
class Address:
    """Where Redis is. `seeds` are the server itself, the Sentinels, or some nodes of the Cluster."""

    kind: Kind
    seeds: tuple[Node, ...]
    master: str = ""
    _scheme: str = field(default="redis", repr=False)
    _credentials: str = field(default="", repr=False)
    _rest: str = field(default="", repr=False)

    def node(self, host: str, port: int) -> Node:
        """A server that holds data, and that an adviser has named."""
        name = f"{_bracketed(host)}:{port}"
        return Node(name, f"{self._scheme}://{self._credentials}{name}{self._rest}")

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address in a URL; raises NotAnAddress."""
        parts = _URL.fullmatch(text)
        if parts is None or parts["scheme"].lower() not in _SCHEMES:
            raise NotAnAddress(EXPECTED)
        kind, scheme, port = _SCHEMES[parts["scheme"].lower()]
        options = dict(parse_qsl(parts["query"] or "", keep_blank_values=True))
        _check(options, kind, scheme)
        if scheme == "unix":
            if not parts["path"]:
                raise NotAnAddress("the path of a socket file, as in unix:///run/redis.sock")
            return cls(kind, (Node(f"unix:{unquote(parts['path'])}", text),))
        credentials, at, hosts = parts["hosts"].rpartition("@")
        found = [_host(host, port) for host in hosts.split(",")]
        if kind == "server":
            if len(found) > 1:
                raise NotAnAddress("one host, or redis+sentinel://… or redis+cluster://… for several")
            _number(parts["path"].strip("/") or "0", "a database number after the host, as in redis://localhost:6379/0")
            return cls(kind, (Node(f"{found[0][0]}:{found[0][1]}", text),))
        master, database = _path(parts["path"], kind)
        own = {name: value for name, value in options.items() if name not in _SENTINEL_OPTIONS}
        rest = f"/{database}" + (f"?{urlencode(own)}" if own else "")
        address = cls(kind, (), master, scheme, credentials + at, rest)
        if kind == "cluster":
            return cls(kind, tuple(address.node(*one) for one in found), "", scheme, credentials + at, rest)
        user, password = options.get("sentinel_username", ""), options.get("sentinel_password", "")
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
        tls = {name: value for name, value in own.items() if name in _TLS_OPTIONS}
        sentinels = cls(kind, (), "", scheme, login, f"?{urlencode(tls)}" if tls else "")
        return cls(kind, tuple(sentinels.node(*one) for one in found), master, scheme, credentials + at, rest)


def with_passwords(url: str, password: str | None, of_sentinels: str | None) -> str:
    """A URL with passwords that come from elsewhere. Raises NotAnAddress if it holds one already, or has no place."""
    parts = _URL.fullmatch(url)
    if parts is None or (password is None and of_sentinels is None):
        return url
    login, _, hosts = parts["hosts"].rpartition("@")
    user, _, own = login.partition(":")
    query = parts["query"] or ""
    named = {name for name, value in parse_qsl(query, keep_blank_values=True) if value}
    if password is not None:
        if own or "password" in named:
            raise NotAnAddress(
                "the password in one place, got one in --redis (TAILRACE_REDIS), too: remove one of the two"
            )
        login = f"{user}:{quote(password, safe='')}"
    if of_sentinels is not None:
        if "sentinel" not in parts["scheme"].lower():
            raise NotAnAddress("an address of Sentinels, redis+sentinel://…, as --redis with it, got another one")
        if "sentinel_password" in named:
            raise NotAnAddress(
                "the password in one place, got one in --redis (TAILRACE_REDIS), too: remove one of the two"
            )
        query += ("&" if query else "") + urlencode({"sentinel_password": of_sentinels})
    at, options = ("@" if login else ""), (f"?{query}" if query else "")
    return f"{parts['scheme']}://{login}{at}{hosts}{parts['path']}{options}"


def _path(path: str, kind: Kind) -> tuple[str, str]:
    pieces = [unquote(piece) for piece in path.split("/")[1:] if piece]
    if kind == "cluster":
        if pieces not in ([], ["0"]):
            raise NotAnAddress("no database but 0, because a Cluster has no other, as in redis+cluster://host1:7000")
        return "", "0"
    if len(pieces) not in (1, 2):
        raise NotAnAddress("the name of the master after the Sentinels, as in redis+sentinel://host1:26379/mymaster/0")
    database = pieces[1] if len(pieces) == 2 else "0"
    _number(database, "a database number after the master, as in redis+sentinel://host1:26379/mymaster/0")
    return pieces[0], database


def _host(text: str, port: int) -> tuple[str, int]:
    match = _HOST.fullmatch(text or "localhost")
    found = int(match[2] or port) if match is not None else 0
    if match is None or not 0 < found < 65536:
        raise NotAnAddress(f"hosts with ports from 1 to 65535 in {EXPECTED}")
    return match[1].strip("[]"), found


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check(options: dict[str, str], kind: Kind, scheme: str) -> None:
    known = _OPTIONS | _TLS_OPTIONS | (_SENTINEL_OPTIONS if kind == "sentinel" else frozenset())
    for name, value in options.items():
        if name not in known:
            raise NotAnAddress(f"options among {', '.join(sorted(known))}, and not {name!r}")
        if name in _TLS_OPTIONS and scheme != "rediss":
            raise NotAnAddress(f"rediss, which is TLS, instead of {scheme} with the option {name}")
        if name in _NUMBERS:
            _number(value, f"a number as {name}")
        if name == "ssl_cert_reqs" and value not in ("none", "optional", "required"):
            raise NotAnAddress("none, optional or required as ssl_cert_reqs")
    if kind == "cluster" and options.get("db", "0") != "0":
        raise NotAnAddress("no database but 0, because a Cluster has no other")


def _number(text: str, expected: str) -> None:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text, re.ASCII):
        raise NotAnAddress(expected)
