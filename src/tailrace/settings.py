"""Settings: each line of the table is a flag, an environment variable and a row of docs/settings.md.

`--batch-interval 60s` is the same as `TAILRACE_BATCH_INTERVAL=60s`. A flag wins over the variable. A secret has no
flag: it is a variable, or the file that the variable with `_FILE` at the end names.
"""

from __future__ import annotations

import os
import re
from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tailrace.errors import SettingError
from tailrace.logs import is_path, shown_path, without_password
from tailrace.store.connection.address import Address, NotAnAddress, with_passwords

# What the pipeline has as Java code of its own; `tailrace.pipeline.spark.jvm_parts` says what each is for.
JVM_PARTS = ("json", "sink", "conflation", "shuffle", "files", "overflow")

ALL = ("pipeline", "materializer", "gateway", "status", "rebuild", "revoke", "acls", "prepare", "dev", "token")


@dataclass(frozen=True)
class Setting:
    """`kind` says how the text is read, `commands` which commands take the setting."""

    name: str
    kind: str
    default: str
    meaning: str
    commands: tuple[str, ...]

    @property
    def flag(self) -> str:
        """Such as `--batch-interval`."""
        return "--" + self.name

    @property
    def variable(self) -> str:
        """Such as `TAILRACE_BATCH_INTERVAL`."""
        return "TAILRACE_" + self.name.upper().replace("-", "_")


TABLE = (
    Setting(
        "kafka",
        "text",
        "localhost:9092",
        "Kafka bootstrap servers, separated by commas. `none` for a gateway that serves only keys and feeds.",
        ("pipeline", "materializer", "gateway", "status", "rebuild", "acls"),
    ),
    Setting(
        "kafka-config",
        "file",
        "",
        "File with how to connect to Kafka, as Kafka's own tools take it (`--command-config`), in the names of Java's "
        "clients or of librdkafka; see docs/kafka-config.md.",
        ("pipeline", "materializer", "gateway", "status", "rebuild", "check"),
    ),
    Setting(
        "kafka-sasl-password",
        "secret",
        "",
        "The password of SASL, or the client secret of OAUTHBEARER, so that `--kafka-config` need not hold it.",
        ("pipeline", "materializer", "gateway", "status", "rebuild", "check"),
    ),
    Setting(
        "kafka-key-password",
        "secret",
        "",
        "The password of the client's key, so that `--kafka-config` need not hold it.",
        ("pipeline", "materializer", "gateway", "status", "rebuild", "check"),
    ),
    Setting(
        "redis",
        "redis",
        "redis://localhost:6379/0",
        "URL of Redis or Valkey, also of Sentinels or a Cluster; see docs/operations.md.",
        ("materializer", "gateway", "status", "revoke", "acls"),
    ),
    Setting(
        "redis-password",
        "secret",
        "",
        "The password of the user at Redis, so that `--redis` need not hold it.",
        ("materializer", "gateway", "status", "revoke"),
    ),
    Setting(
        "redis-sentinel-password",
        "secret",
        "",
        "The password at the Sentinels, so that `--redis` need not hold it.",
        ("materializer", "gateway", "status", "revoke"),
    ),
    Setting(
        "prefix",
        "text",
        "",
        "Prefix of all keys in Redis; by default `tailrace:<app>`.",
        ("materializer", "gateway", "status", "revoke", "acls"),
    ),
    Setting(
        "checkpoints",
        "text",
        ".tailrace/checkpoints",
        "Directory of Spark's checkpoints, one per view and generation; not a URL. A lock keeps out a second "
        "pipeline of the same host, but none of another host.",
        ("pipeline",),
    ),
    Setting(
        "checkpoints-shared",
        "switch",
        "no",
        "Whether all machines of a cluster have the directory of checkpoints at the same path; required with "
        "`--spark-master`.",
        ("pipeline",),
    ),
    Setting(
        "batch-interval",
        "duration",
        "60s",
        "How long a real-time batch lasts. Offsets and state are saved at its end.",
        ("pipeline", "dev"),
    ),
    Setting(
        "partitions",
        "count",
        "2",
        "Partitions of a topic that Tailrace creates.",
        ("pipeline", "check", "explain", "dev"),
    ),
    Setting(
        "rehearse",
        "switch",
        "yes",
        "Whether to rehearse batch boundaries after the start, so that the first ones are short; takes some seconds.",
        ("pipeline",),
    ),
    Setting(
        "create-topics",
        "topics",
        "changelogs",
        "Which missing topics the pipeline creates: `changelogs`, or `all`, which includes source topics.",
        ("pipeline", "acls"),
    ),
    Setting(
        "new-partitions",
        "new-partitions",
        "rebuild",
        "What to do if partitions are added to a topic whose order within a partition matters: `rebuild` the "
        "views that read it, or `refuse`: leave that to you, and report that rows may be stale until it is done.",
        ("pipeline", "dev"),
    ),
    Setting("replication", "count", "1", "Replicas of a topic that Tailrace creates.", ("pipeline",)),
    Setting(
        "state-partitions",
        "count",
        "2",
        "Partitions of a view's state; fixed when its checkpoint is made.",
        ("pipeline", "check", "explain", "dev"),
    ),
    Setting(
        "spark-master",
        "text",
        "",
        "Spark master URL of a cluster, such as spark://host:7077; by default Spark runs in this process.",
        ("pipeline",),
    ),
    Setting(
        "spark-secret",
        "secret",
        "",
        "The secret that master and workers of `--spark-master` have as `spark.authenticate.secret`; see "
        "docs/operations.md. YARN and Kubernetes need none.",
        ("pipeline",),
    ),
    Setting(
        "spark-authentication",
        "switch",
        "yes",
        "Whether Spark's connections on a cluster ask for a secret and are encrypted. With `no` everyone who reaches "
        "a port of Spark's can read rows and run code.",
        ("pipeline",),
    ),
    Setting(
        "spark-ui-port",
        "port",
        "",
        "Port of Spark's page on loopback; off by default. It has no login: every user of the machine can read plans, "
        "settings and the start of rows. Not with `--spark-master`.",
        ("pipeline", "dev"),
    ),
    Setting(
        "jvm-parts",
        "parts",
        "all",
        "Which parts of the pipeline run as its own Java code in Spark: `all`, `none`, or some of "
        f"{', '.join(f'`{name}`' for name in JVM_PARTS)}, separated by commas. Spark's own plans take the place of the "
        "others: see docs/operations.md.",
        ("pipeline", "check", "explain", "dev"),
    ),
    Setting(
        "jars",
        "text",
        "",
        "Directory for downloaded jars; by default the user's cache.",
        ("pipeline", "check", "explain", "prepare", "dev"),
    ),
    Setting(
        "registry",
        "text",
        "",
        "URL of the schema registry (Confluent API); none by default.",
        ("pipeline", "gateway", "check", "explain", "dev"),
    ),
    Setting(
        "registry-config",
        "file",
        "",
        "File with how to connect to the schema registry, in the names of Confluent's clients: TLS, certificates, a "
        "user or a token; see docs/sources.md.",
        ("pipeline", "gateway", "check", "explain", "dev"),
    ),
    Setting(
        "registry-password",
        "secret",
        "",
        "The password of the user at the schema registry, so that neither URL nor file need hold it.",
        ("pipeline", "gateway", "check", "explain", "dev"),
    ),
    Setting(
        "registry-token",
        "secret",
        "",
        "The token that the schema registry wants instead of a user and password.",
        ("pipeline", "gateway", "check", "explain", "dev"),
    ),
    Setting(
        "registry-key-password",
        "secret",
        "",
        "The password of the client's key, so that `--registry-config` need not hold it.",
        ("pipeline", "gateway", "check", "explain", "dev"),
    ),
    Setting(
        "tombstones",
        "duration",
        "24h",
        "How long Redis remembers at least that a key has gone. A client that resumes later gets `reset`.",
        ("materializer",),
    ),
    Setting("host", "text", "127.0.0.1", "Address that the gateway listens on.", ("gateway", "dev")),
    Setting("port", "port", "8080", "Port that the gateway listens on; 0 takes a free one.", ("gateway", "dev")),
    Setting(
        "admin-port",
        "port",
        "",
        "Inner port of the gateway: metrics, and what health knows, are served there and no longer at `--port`; 0 "
        "takes a free one. It knows no tokens and no TLS. By default there is none.",
        ("gateway",),
    ),
    Setting(
        "admin-host",
        "text",
        "127.0.0.1",
        "Address that `--admin-port` listens on. Everyone who reaches it reads health and metrics, without a token.",
        ("gateway",),
    ),
    Setting(
        "tls-cert",
        "file",
        "",
        "File with the gateway's certificate as PEM, followed by those that signed it. With it the gateway speaks "
        "HTTPS and wss, and nothing else. Taken anew when it changes.",
        ("gateway", "dev"),
    ),
    Setting(
        "tls-key",
        "file",
        "",
        "File with the key of `--tls-cert` as PEM, without a password. Taken anew when it changes.",
        ("gateway", "dev"),
    ),
    Setting(
        "slow-client",
        "duration",
        "60s",
        "How long a client may read nothing of what waits for it before the gateway cuts it off.",
        ("gateway",),
    ),
    Setting(
        "request-deadline",
        "duration",
        "30s",
        "How long a client may take to send the head of a request, and as long again for its body.",
        ("gateway",),
    ),
    Setting(
        "drain",
        "duration",
        "5s",
        "How long a gateway that stops takes to let its clients go, so that they do not all reconnect elsewhere "
        "at once.",
        ("gateway",),
    ),
    Setting(
        "feed-backlog",
        "count",
        "1048576",
        "Bytes of events that may wait for a client that reads a feed too slowly, before its connection ends.",
        ("gateway",),
    ),
    Setting(
        "access",
        "access",
        "",
        "`jwt`: requests need a token. `off`: they need none. By default `off` on a loopback address; on any "
        "other address you must choose.",
        ("gateway", "dev"),
    ),
    Setting("jwt-algorithm", "algorithm", "", "How tokens are signed: HS256, RS256 or ES256.", ("gateway", "token")),
    Setting(
        "jwt-key", "file", "", "File with the key of tokens: a secret, or a public key as PEM.", ("gateway", "token")
    ),
    Setting(
        "jwt-secret",
        "secret",
        "",
        "The secret of tokens that are signed with HS256; there is no flag for it.",
        ("gateway", "token"),
    ),
    Setting("jwks", "url", "", "URL at which the issuer of tokens publishes its keys.", ("gateway",)),
    Setting("jwt-issuer", "text", "", "Who must have issued a token (`iss`); by default anyone.", ("gateway", "token")),
    Setting("jwt-audience", "text", "", "Whom a token must be for (`aud`); by default anyone.", ("gateway", "token")),
    Setting("jwt-leeway", "duration", "10s", "How far the clocks of issuer and gateway may differ.", ("gateway",)),
    Setting(
        "rights",
        "file",
        "",
        "File that says what tokens allow; by default their own claim says it.",
        ("gateway",),
    ),
    Setting("rights-claim", "text", "tailrace", "The claim that says what a token allows.", ("gateway", "token")),
    Setting("auth-cookie", "text", "", "Name of a cookie that may hold the token; none by default.", ("gateway",)),
    Setting(
        "origins",
        "text",
        "",
        "Web pages that may use the gateway besides its own, such as https://app.example.com, separated by commas.",
        ("gateway", "dev"),
    ),
    Setting(
        "open",
        "open",
        "",
        "What needs no token besides health: `metrics`, `documents` (OpenAPI, AsyncAPI), or both with a comma.",
        ("gateway",),
    ),
    Setting(
        "trusted-proxies",
        "text",
        "",
        "Addresses or networks of proxies whose X-Forwarded-For the gateway trusts, separated by commas.",
        ("gateway",),
    ),
    Setting("limit-connections", "count", "20000", "Most streams and WebSockets of one gateway.", ("gateway",)),
    Setting(
        "limit-user-connections",
        "count",
        "100",
        "Most streams and WebSockets of one user, or of one address.",
        ("gateway",),
    ),
    Setting(
        "limit-connects",
        "count",
        "10",
        "Most new connections of a user per second; ten times as many at once.",
        ("gateway",),
    ),
    Setting(
        "limit-messages",
        "count",
        "50",
        "Most messages per second on a WebSocket; ten times as many at once.",
        ("gateway",),
    ),
    Setting("limit-subscriptions", "count", "1000", "Most subscriptions on one WebSocket.", ("gateway",)),
    Setting("limit-keys", "count", "10000", "Most keys in one subscription, or in a stream.", ("gateway",)),
    Setting(
        "limit-connection-keys",
        "count",
        "20000",
        "Most keys in all subscriptions of one WebSocket.",
        ("gateway",),
    ),
    Setting("limit-key-bytes", "count", "65535", "Most bytes of a key that clients ask for.", ("gateway",)),
    Setting("limit-body-bytes", "count", "1048576", "Most bytes of a request's body.", ("gateway",)),
    Setting("limit-message-bytes", "count", "1048576", "Most bytes of a message on a WebSocket.", ("gateway",)),
    Setting(
        "limit-requests",
        "count",
        "20000",
        "Most requests under way at one gateway: waiting, being answered, or with an answer that is not read yet.",
        ("gateway",),
    ),
    Setting(
        "limit-user-requests",
        "count",
        "100",
        "Most requests under way of one user; a listing counts as ten.",
        ("gateway",),
    ),
    Setting(
        "limit-lookups",
        "count",
        "500",
        "Most lookups of a user per second; ten times as many at once. A listing counts as ten, a step of a "
        "stream as one and one more per KiB, a query as its cost.",
        ("gateway",),
    ),
    Setting(
        "limit-unread-bytes",
        "count",
        "268435456",
        "Most bytes of answers that clients have not read.",
        ("gateway",),
    ),
    Setting(
        "limit-user-unread-bytes",
        "count",
        "33554432",
        "Most bytes of answers that one user has not read.",
        ("gateway",),
    ),
    Setting("limit-stream-bytes", "count", "268435456", "Most bytes of streams that one gateway keeps.", ("gateway",)),
    Setting(
        "limit-user-stream-bytes",
        "count",
        "8388608",
        "Most bytes of streams that one gateway keeps for one user.",
        ("gateway",),
    ),
    Setting(
        "limit-followed-bytes",
        "count",
        "1073741824",
        "Most bytes of keys that are followed at one gateway; each key counts 200 more.",
        ("gateway",),
    ),
    Setting(
        "limit-user-followed-bytes",
        "count",
        "33554432",
        "Most bytes of keys that one user follows at one gateway.",
        ("gateway",),
    ),
    Setting(
        "limit-query-cost",
        "count",
        "1000000",
        "Highest cost of all queries that are followed at one gateway.",
        ("gateway",),
    ),
    Setting(
        "limit-user-query-cost",
        "count",
        "5000",
        "Highest cost of all queries that one user follows at one gateway.",
        ("gateway",),
    ),
    Setting(
        "data", "text", ".tailrace", "Directory in which `tailrace dev` keeps its data and logs.", ("dev", "token")
    ),
    Setting(
        "health-port",
        "port",
        "",
        "Port for /health and /metrics of a process without a web server; off by default.",
        ("pipeline", "materializer"),
    ),
    Setting(
        "health-host",
        "text",
        "127.0.0.1",
        "Address that `--health-port` listens on. Everyone who reaches it reads health and metrics, without a token.",
        ("pipeline", "materializer"),
    ),
    Setting("log-level", "level", "info", "debug, info, warning or error.", ALL),
)

_DEFAULTS = {setting.name: setting.default for setting in TABLE}
# URLs that may hold a password.
_URLS = frozenset({"redis", "registry"})
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def add_flags(parser: ArgumentParser, command: str) -> None:
    """Give a command's parser its flags."""
    group = parser.add_argument_group(
        "settings", "Each is also an environment variable: TAILRACE_ and the flag's name."
    )
    for setting in TABLE:
        # Every user of a machine sees the flags of a process, so a secret is a variable only.
        if setting.kind == "secret":
            group.add_argument(setting.flag, action=_NoFlag, nargs="?", help=SUPPRESS)
        elif command in setting.commands:
            default = f" Default: {setting.default}." if setting.default else ""
            group.add_argument(
                setting.flag, metavar=setting.kind.upper(), help=setting.meaning.replace("%", "%%") + default
            )


class _NoFlag(Action):
    """Refuses a secret as a flag without showing it, as the parser would for a flag that it does not know."""

    def __call__(self, parser: ArgumentParser, *_: object) -> NoReturn:
        variable = f"TAILRACE_{self.dest.upper()}"
        parser.error(
            f"{self.option_strings[0]}: expected no such flag, because every user of a machine sees the flags of a "
            f"process: set {variable}, or {variable}_FILE; consider this secret as known to others"
        )


@dataclass(frozen=True)
class Settings:
    """The settings of one process, read and checked. Never print them: some are secret.

    `chosen` are those that a flag or a variable gives, `flags` those that a flag gives, and `secret_files` the files
    that secrets are in.
    """

    values: Mapping[str, str] = field(repr=False)
    chosen: frozenset[str] = frozenset()
    secret_files: Mapping[str, Path] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()

    @classmethod
    def read(cls, flags: Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
        """Flags first, then the environment, then the defaults. Raises SettingError for a value that can't be used."""
        values, chosen, given, secret_files = {}, set[str](), set[str](), dict[str, Path]()
        for setting in TABLE:
            flag = getattr(flags, setting.name.replace("-", "_"), None)
            text = flag if flag is not None else environment.get(setting.variable, setting.default)
            _check(setting, text, setting.flag if flag is not None else setting.variable)
            if flag is not None or setting.variable in environment:
                chosen.add(setting.name)
            if flag is not None:
                given.add(setting.name)
            if setting.kind == "secret" and (path := environment.get(f"{setting.variable}_FILE")):
                if text:
                    raise SettingError(
                        f"{setting.variable}_FILE: expected the secret in one place, got {setting.variable}, too: "
                        "remove one of the two"
                    )
                secret_files[setting.name] = Path(path)
                text = _secret_in(Path(path), f"{setting.variable}_FILE")
            values[setting.name] = text
        return cls(values, frozenset(chosen), secret_files, frozenset(given))

    def text(self, name: str) -> str:
        """The text that was given, or the default."""
        return self.values[name] if name in self.values else _DEFAULTS[name]

    def given(self, name: str) -> bool:
        """Whether a flag or a variable gives it."""
        return name in self.chosen

    def secret(self, name: str) -> tuple[str | None, tuple[Path, ...]]:
        """A secret as it is now, None if there is none, and the file that it is in, if it is in one.

        Raises SettingError if that file can't be read any more.
        """
        path = self.secret_files.get(name)
        if path is None:
            return self.text(name) or None, ()
        variable = "TAILRACE_" + name.upper().replace("-", "_")
        return _secret_in(path, f"{variable}_FILE"), (path,)

    def redis(self) -> str:
        """The URL of Redis with its passwords, wherever they are. Raises SettingError if one is in two places."""
        password, _ = self.secret("redis-password")
        of_sentinels, _ = self.secret("redis-sentinel-password")
        try:
            return with_passwords(self.text("redis"), password, of_sentinels)
        except NotAnAddress as error:
            which = "" if password is not None else "_SENTINEL"
            raise SettingError(f"TAILRACE_REDIS{which}_PASSWORD: expected {error}") from None

    def seen_passwords(self) -> list[str]:
        """A warning for each flag that holds a password: every user of the machine sees the flags of a process."""
        return [
            f"{setting.flag} holds a password, which every user of this machine can see: set "
            f"{setting.variable}_PASSWORD or {setting.variable}_PASSWORD_FILE, or the whole URL as {setting.variable}"
            for setting in TABLE
            if setting.name in self.flags and _holds_password(setting, self.text(setting.name))
        ]

    def number(self, name: str) -> int:
        """A count or a port; 0 if it is empty."""
        return int(self.text(name) or 0)

    def seconds(self, name: str) -> float:
        """A duration in seconds."""
        return seconds(self.text(name))


def forget_secrets(environment: MutableMapping[str, str]) -> None:
    """Take secrets out of an environment that other processes inherit, such as Spark's JVM."""
    for setting in TABLE:
        text = environment.get(setting.variable, "")
        if text and (setting.kind == "secret" or _holds_password(setting, text)):
            del environment[setting.variable]


def _holds_password(setting: Setting, text: str) -> bool:
    return setting.name in _URLS and without_password(text) != text


def _secret_in(path: Path, source: str) -> str:
    try:
        # An editor ends a file with an end of line, which is no part of a secret.
        found = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "bytes that are not UTF-8"
        raise SettingError(f"{source}: expected a file that can be read, got {shown_path(str(path))}: {why}") from None
    if not found:
        raise SettingError(f"{source}: expected a secret in {str(path)!r}, got an empty file")
    return found


def seconds(text: str) -> float:
    """The seconds in a duration such as `500ms`, `5s`, `1m` or `1h`. Raises ValueError for any other text."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return float(match[1]) * _SECONDS[match[2]]


def _check(setting: Setting, text: str, source: str) -> None:
    if text == "" and setting.default == "":
        return
    if (problem := _problem(setting.kind, text)) is not None:
        got = "the content of one" if setting.kind == "file" else repr(without_password(text))
        raise SettingError(f"{source}: expected {problem}, got {got}")


def _problem(kind: str, text: str) -> str | None:
    if kind == "duration":
        try:
            return None if seconds(text) > 0 else "a duration above zero"
        except ValueError:
            return "a duration such as 500ms, 5s, 1m or 1h"
    if kind == "count":
        return None if text.isascii() and text.isdigit() and int(text) > 0 else "a whole number above zero"
    if kind == "port":
        return None if text.isascii() and text.isdigit() and int(text) < 65536 else "a port from 0 to 65535"
    if kind == "redis":
        try:
            Address.parse(text)
        except NotAnAddress as error:
            return str(error)
        return None
    if kind == "topics":
        return None if text in ("changelogs", "all") else "changelogs or all"
    if kind == "new-partitions":
        return None if text in ("rebuild", "refuse") else "rebuild or refuse"
    if kind == "access":
        return None if text in ("off", "jwt") else "off or jwt"
    if kind == "algorithm":
        return None if text in ("HS256", "RS256", "ES256") else "HS256, RS256 or ES256"
    if kind == "open":
        known = {one.strip() for one in text.split(",")} <= {"metrics", "documents"}
        return None if known else "metrics, documents, or both with a comma"
    if kind == "parts":
        known = text in ("all", "none") or {one.strip() for one in text.split(",")} <= set(JVM_PARTS)
        return None if known else f"all, none, or some of {', '.join(JVM_PARTS)}, separated by commas"
    if kind == "switch":
        return None if text in ("yes", "no") else "yes or no"
    if kind == "file" and text:
        # Certificates and keys are often given as texts in variables.
        return None if is_path(text) else "the path of a file"
    if kind == "level":
        return None if text in ("debug", "info", "warning", "error") else "debug, info, warning or error"
    return None if text else "a value"


def page() -> str:
    """docs/settings.md, written by `scripts/document-settings`."""
    lines = [
        "# Settings",
        "",
        "Each setting is a flag and an environment variable; the flag wins. A secret has no flag, because every user",
        "of a machine sees the flags of a process: it is a variable, or in the file that the variable with `_FILE`",
        "names. [0043](decisions/0043-secrets.md) says where a secret is nevertheless. `scripts/document-settings`",
        "writes this page from `src/tailrace/settings.py`, and a test compares the two.",
        "",
        "| flag | variable | default | commands | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for s in TABLE:
        default = f"`{s.default}`" if s.default else ""
        flag = f"`{s.flag}`" if s.kind != "secret" else ""
        variable = f"`{s.variable}`" if s.kind != "secret" else f"`{s.variable}`, or `{s.variable}_FILE`"
        lines.append(f"| {flag} | {variable} | {default} | {', '.join(s.commands)} | {s.meaning} |")
    return "\n".join(lines) + "\n"
