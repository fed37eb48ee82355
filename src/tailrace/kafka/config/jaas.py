"""`sasl.jaas.config`: the credentials of Java's clients, in one line.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="…";

It is read as Java reads it: options are `name=value` or `name="value"`. In quotes, `\\"`, `\\\\`, `\\n`, `\\t` and
octal numbers such as `\\374` are characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_PACKAGE = "org.apache.kafka.common.security"
PLAIN = f"{_PACKAGE}.plain.PlainLoginModule"
SCRAM = f"{_PACKAGE}.scram.ScramLoginModule"
OAUTHBEARER = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule"

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_ESCAPED = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


@dataclass(frozen=True)
class Jaas:
    """A login module and its options, which may be secret."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def read_jaas(text: str) -> Jaas:
    """Read such a line. Raises ValueError, whose text holds none of it, if it is anything else."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError("expected a login module, `required`, options and a semicolon at the end")
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("expected `required` after the login module")
    options: dict[str, str] = {}
    while rest:
        if len(rest) < 3 or rest[1] != ("=", True) or rest[0][1] or rest[2][1]:
            raise ValueError('expected options such as username="…", and quotes around values with other characters')
        options[rest[0][0]] = rest[2][0]
        rest = rest[3:]
    return Jaas(module, options)


def write_jaas(jaas: Jaas) -> str:
    """The line for a login module."""
    options = "".join(f" {name}={_quoted(value)}" for name, value in jaas.options.items())
    return f"{jaas.module} required{options};"


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Each token, and whether it is a mark: an equals sign or a semicolon."""
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("expected an end of each quoted text")
        double, single, mark, word = match.groups()
        quoted = double if double is not None else single
        found.append((_unescaped(quoted), False) if quoted is not None else (mark or word, mark is not None))
        at = match.end()
    return found


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    after = escape[1]
    return chr(int(after, 8)) if after.isdigit() and after < "8" else _ESCAPES.get(after, after)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
