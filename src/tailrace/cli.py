"""The command line: one command per process, and the tools around them.

Heavy imports stay inside the commands, so that `tailrace gateway` needs no Spark and `--help` is instant.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from tailrace import __version__
from tailrace.declarations.loading import app_name, load_app
from tailrace.errors import DeclarationError, SettingError, TailraceError, Unreachable
from tailrace.logs import log_to_stderr
from tailrace.settings import Settings, add_flags, forget_secrets, seconds

log = logging.getLogger(__name__)

_MODULE = "the app, as MODULE:APP, such as movies:app"
_NAME = "the app's name, such as movies, or MODULE:APP"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors that a user can fix are printed without a traceback."""
    flags = _parsed(arguments)
    command: Callable[[argparse.Namespace], int] = flags.command
    try:
        code = command(flags)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed it.
        if not _is_closed(sys.stdout.fileno()):
            raise
        # Python writes what is still buffered when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except DeclarationError as error:
        print(_numbered(error), file=sys.stderr)
    except TailraceError as error:
        print(f"tailrace: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    flags, unknown = parser.parse_known_args(arguments)
    if unknown:
        # What follows an unknown flag may be a secret.
        names = [one.partition("=")[0] for one in unknown if one.startswith("-")] or [
            f"{len(unknown)} more than expected"
        ]
        parser.error(f"unrecognized arguments: {' '.join(names)}")
    return flags


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailrace", description="Kafka topics as live views that every client can read, follow and resume."
    )
    parser.add_argument("--version", action="version", version=f"tailrace {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=summary, description=summary)
        found.set_defaults(command=command)
        return found

    dev = add("dev", _dev, "Run an app on this machine with embedded Kafka, Redis and Spark.")
    dev.add_argument("app", help=_MODULE)
    dev.add_argument("--fresh", action="store_true", help="Start empty: remove the data of earlier runs.")
    dev.add_argument(
        "--secure",
        action="store_true",
        help="Lock everything: TLS, a password and the least rights for each process, tokens for clients.",
    )
    dev.add_argument(
        "--also", action="append", default=[], metavar="COMMAND", help="A command to run with it, such as a producer."
    )
    add_flags(dev, "dev")
    init = add("init", _init, "Write a first module to start from.")
    init.add_argument("directory", nargs="?", default=".", help="where to write it; by default the current directory")
    check = add("check", _check, "Find mistakes in an app without running it.")
    check.add_argument("app", help=_MODULE)
    check.add_argument(
        "--kafka",
        dest="catalog_at",
        default=os.environ.get("TAILRACE_KAFKA", ""),
        metavar="SERVERS",
        help="Also compare with the catalog there, and say what the next start would build anew. (TAILRACE_KAFKA)",
    )
    add_flags(check, "check")
    explain = add("explain", _explain, "Show how a view is computed.")
    explain.add_argument("app", help=_MODULE)
    explain.add_argument("view", help="the view or feed")
    add_flags(explain, "explain")
    prepare = add(
        "prepare", _prepare, "Fetch what Spark needs and archive its classes, so that later starts are faster."
    )
    add_flags(prepare, "prepare")
    rebuild = add(
        "rebuild",
        _rebuild,
        "Build a view anew from the earliest records. Readers keep the old rows until it is complete.",
    )
    reset = add(
        "reset", _rebuild, "Build a view anew from a chosen place. Readers keep the old rows until it is complete."
    )
    places = reset.add_mutually_exclusive_group(required=True)
    places.add_argument("--to-earliest", action="store_true", help="From the earliest records.")
    places.add_argument("--to-latest", action="store_true", help="From the records still to come.")
    places.add_argument("--to-offset", metavar="OFFSET", help="From an offset, in every partition.")
    places.add_argument(
        "--shift-by", metavar="N", help="From N records after where the view is; before it, if N is negative."
    )
    places.add_argument("--by-duration", metavar="DURATION", help="From this long ago on, such as PT5M.")
    places.add_argument("--to-datetime", metavar="TIME", help="From a time on, such as 2026-01-31T12:00:00Z.")
    for anew in (rebuild, reset):
        anew.add_argument("app", help=_NAME)
        anew.add_argument("view", help="the view")
        anew.add_argument("--execute", action="store_true", help="Do it. Without this the plan is only shown.")
        add_flags(anew, "rebuild")
    status = add("status", _status, "Show how far each view of an app is.")
    status.add_argument("app", help=_NAME)
    status.add_argument("--json", action="store_true", help="Print JSON.")
    add_flags(status, "status")
    acls = add(
        "acls",
        _acls,
        "Print the least rights in Kafka and Redis that each process of an app needs. Connects to nothing.",
    )
    acls.add_argument("app", help=_MODULE)
    acls.add_argument(
        "--for",
        dest="process",
        metavar="PROCESS",
        help="Only pipeline, materializer, gateway or operator, which is whoever runs status, rebuild, reset, revoke.",
    )
    acls.add_argument(
        "--as",
        dest="form",
        default="table",
        metavar="FORM",
        help="kafka-acls: commands for a shell. redis: commands for redis-cli. json: both for tools. Default: table.",
    )
    acls.add_argument(
        "--user",
        default="{app}-{process}",
        metavar="NAME",
        help="What Kafka and Redis call a process, with {app} and {process} in it. Default: {app}-{process}.",
    )
    acls.add_argument(
        "--command-config",
        default="",
        metavar="FILE",
        help="The file of the administrator, for the option of kafka-acls with the same name.",
    )
    add_flags(acls, "acls")
    revoke = add("revoke", _revoke, "Stop trusting tokens that were issued so far, and end their connections.")
    revoke.add_argument("app", help=_NAME)
    whose = revoke.add_mutually_exclusive_group(required=True)
    whose.add_argument("--sub", metavar="SUBJECT", help="All tokens of a subject; tokens issued later are trusted.")
    whose.add_argument("--jti", metavar="ID", help="The token with this id.")
    revoke.add_argument(
        "--for", dest="lasting", metavar="DURATION", default="24h", help="How long tokens last at most. Default: 24h."
    )
    add_flags(revoke, "revoke")
    token = add("token", _token, "Sign a token for development, with the secret of a gateway.")
    token.add_argument("--sub", metavar="SUBJECT", default="dev", help="Whom it is for. Default: dev.")
    token.add_argument("--all", action="store_true", help="Allow everything.")
    token.add_argument("--views", metavar="NAMES", help="Views, separated by commas; a name may end in *.")
    token.add_argument(
        "--key",
        action="append",
        default=[],
        help="Only rows with this key, which may end in *, or with one of several. One of several columns is an array.",
    )
    token.add_argument("--where", metavar="QUERY", default="", help="Only rows that match, such as: rating > 8.")
    token.add_argument("--feeds", metavar="NAMES", help="Feeds, in the same way.")
    token.add_argument("--client", action="append", default=[], help="Only feeds of this client, or of several.")
    token.add_argument("--topics", metavar="NAMES", help="Topics that events may be sent to, in the same way.")
    token.add_argument("--operations", action="store_true", help="Also /metrics.")
    token.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="A further claim, such as org=7 or 'roles=[\"support\"]'. What is no JSON is text.",
    )
    token.add_argument("--ttl", metavar="DURATION", default="1h", help="How long it lasts. Default: 1h.")
    add_flags(token, "token")
    for name, command, summary, argument in (
        ("pipeline", _pipeline, "Compute the views of an app: topics to changelogs.", _MODULE),
        ("materializer", _materializer, "Keep Redis up to date with the changelogs of an app.", _NAME),
        ("gateway", _gateway, "Serve the views of an app to clients.", _NAME),
    ):
        process = add(name, command, summary)
        process.add_argument("app", help=argument)
        add_flags(process, name)
    return parser


def _settings(flags: argparse.Namespace) -> Settings:
    settings = Settings.read(flags)
    log_to_stderr(settings.text("log-level"))
    # The processes that this one starts need none of them.
    forget_secrets(os.environ)
    for warning in settings.seen_passwords():
        log.warning("%s", warning)
    return settings


def _seconds(flag: str, text: str) -> float:
    try:
        return seconds(text)
    except ValueError:
        raise SettingError(f"{flag}: expected a duration such as 1h, got {text!r}") from None


def _keep_to_itself() -> int:
    """Let nobody else read what this process and those it starts write: it holds rows, and secrets.

    The umask that was there before.
    """
    return os.umask(0o077)


def _pipeline(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    _keep_to_itself()
    app = load_app(flags.app)
    from tailrace.pipeline.run import run

    return run(app, settings)


def _materializer(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    from tailrace.materializer.run import run

    return run(app_name(flags.app), settings)


def _gateway(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    from tailrace.gateway.run import run

    return run(app_name(flags.app), settings)


def _acls(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    app = load_app(flags.app)
    from tailrace.operations import printed_rights as printed
    from tailrace.operations.kafka_rights import PROCESSES, kafka_rights
    from tailrace.operations.redis_rights import redis_rights
    from tailrace.store.connection.address import Address

    for flag, got, known in (("--for", flags.process, (None, *PROCESSES)), ("--as", flags.form, printed.FORMS)):
        if got not in known:
            raise SettingError(f"{flag}: expected {', '.join(filter(None, known))}, got {got!r}")
    create_sources = settings.text("create-topics") == "all"
    prefix, cluster = settings.text("prefix"), Address.parse(settings.text("redis")).kind == "cluster"
    found = [
        printed.ProcessRights(
            process,
            printed.user_name(flags.user, app.name, process),
            kafka_rights(app, process, create_sources=create_sources),
            redis_rights(app, process, prefix=prefix, cluster=cluster),
        )
        for process in ([flags.process] if flags.process is not None else PROCESSES)
    ]
    if flags.form == printed.JSON:
        print(printed.as_json(app.name, found))
    if flags.form == printed.KAFKA:
        print("\n".join(printed.kafka_commands(found, settings.text("kafka"), flags.command_config)))
    if flags.form == printed.TABLE:
        _print_table(printed.kafka_table(found))
        print()
    if flags.form in (printed.TABLE, printed.REDIS):
        print("\n".join(printed.redis_commands(found)))
    return 0


def _revoke(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    from tailrace.store.connection.outages import Unavailable
    from tailrace.store.layout.keys import default_prefix
    from tailrace.store.read.revocations import revoke

    lasting = _seconds("--for", flags.lasting)
    name = f"sub:{flags.sub}" if flags.sub is not None else f"jti:{flags.jti}"
    try:
        revoke(settings.redis(), settings.text("prefix") or default_prefix(app_name(flags.app)), name, lasting)
    except Unavailable as error:
        raise Unreachable(f"expected Redis to answer, which keeps revocations, got: {error}") from None
    print(f"revoked for {flags.lasting}: gateways end the connections of these tokens now")
    return 0


def _check(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    app = load_app(flags.app)
    from tailrace.pipeline.analysis.check import check

    checked, consequences = check(app, settings, flags.catalog_at)
    table = [("name", "kind", "mode", "task slots", "row")]
    table += [(one.name, one.kind, one.mode, str(one.slots), one.columns) for one in checked]
    _print_table(table)
    counts = [_counted(len(app.views), "view")] + ([_counted(len(app.feeds), "feed")] if app.feeds else [])
    print(f"{app.name}: {', '.join(counts)}, no mistakes")
    if flags.catalog_at:
        nothing = f"the next start builds nothing anew, by the catalog at {flags.catalog_at}"
        print("\n".join(consequences) or nothing)
    return 0


def _explain(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    app = load_app(flags.app)
    from tailrace.pipeline.analysis.explain import explain

    print(explain(app, flags.view, settings))
    return 0


def _prepare(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    from tailrace.dev import jars
    from tailrace.dev.java import ensure_java
    from tailrace.pipeline.spark.archive import archive_file, make_archive

    ensure_java()
    needed = jars.ensure("spark", Path(settings.text("jars")) if settings.text("jars") else None)
    if not archive_file(needed, os.environ).is_file():
        print("archiving Spark's classes; this takes about a minute, once", file=sys.stderr)
    print(f"ready: Spark starts faster with {make_archive(needed)}")
    return 0


def _rebuild(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    from tailrace.operations.rebuild import execute, plan
    from tailrace.operations.resets import Target, check_target

    target = Target("earliest")
    for kind, flag in (("offset", "to_offset"), ("shift", "shift_by"), ("duration", "by_duration")):
        if getattr(flags, flag, None) is not None:
            target = Target(kind, getattr(flags, flag))
    if getattr(flags, "to_datetime", None) is not None:
        target = Target("datetime", flags.to_datetime)
    if getattr(flags, "to_latest", False):
        target = Target("latest")
    check_target(target)
    app = app_name(flags.app)
    planned = plan(app, flags.view, target, settings)
    table = [("topic", "partition", "is at", "begins at", "ends at")]
    table += [(p.topic, str(p.partition), f"{p.now:,}", f"{p.start:,}", f"{p.end:,}") for p in planned.partitions]
    _print_table(table)
    if planned.feed:
        said = f"feed {planned.view}: sends its events again from {planned.target}"
    else:
        said = f"view {planned.view}: is built anew from {planned.target}, to replace generation {planned.generation}"
    print(f"{said}, {_counted(planned.records, 'record')}")
    if planned.also:
        print(f"with it, because they read it: {', '.join(planned.also)}")
    if not flags.execute:
        print("nothing was done: add --execute to do it")
        return 0
    execute(app, planned, settings)
    kept = "" if planned.feed else "; readers keep the old rows until the build is complete"
    print(f"asked for: a running pipeline begins now, any other when it starts{kept}")
    return 0


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _status(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    from tailrace.operations.status import status
    from tailrace.operations.status_table import footnotes, view_rows

    found = status(app_name(flags.app), settings)
    if flags.json:
        print(json.dumps(asdict(found)))
        return 0
    _print_table(view_rows(found.views))
    for line in footnotes(found.views):
        print(line)
    letters = [("topic", "dead letters", "reasons")]
    for one in found.dead_letters:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in one.letters.items())
        letters.append((one.topic, f"{sum(one.letters.values()):,}", reasons))
    print()
    _print_table(letters)
    return 0


def _dev(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    umask = _keep_to_itself()
    from tailrace.dev.run import run

    return run(flags.app, settings, fresh=flags.fresh, also=flags.also, umask_also=umask, secure=flags.secure)


def _token(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    from tailrace.access.configuration import read_issuer
    from tailrace.access.issuing import EVERYTHING, write_rights
    from tailrace.dev.data import Data

    lasts = _seconds("--ttl", flags.ttl)
    if lasts < 1:
        raise SettingError(f"--ttl: expected a second at least, got {flags.ttl!r}")
    narrower = (flags.views, flags.key, flags.where, flags.feeds, flags.client, flags.topics, flags.operations)
    if flags.all and any(narrower):
        raise SettingError("--all: expected no other right with it, got one: leave one of the two out")
    rights = EVERYTHING
    if not flags.all:
        rights = write_rights(
            views=_names(flags.views),
            keys=flags.key,
            where=flags.where,
            feeds=_names(flags.feeds),
            clients=flags.client,
            topics=_names(flags.topics),
            operations=flags.operations,
        )
    issuer = read_issuer(settings, Data(Path(settings.text("data"))).jwt_key)
    print(issuer.token(flags.sub, rights, lasts, dict(_claim(text) for text in flags.claim)))
    return 0


def _names(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def _claim(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingError(f"--claim: expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _init(flags: argparse.Namespace) -> int:
    from tailrace.dev.template import write_template

    directory = Path(flags.directory)
    for path in write_template(directory):
        print(f"wrote {path}")
    print("next: tailrace dev movies:app")
    return 0


def _is_closed(output: int) -> bool:
    """Whether nobody reads a pipe any more."""
    poll = select.poll()
    poll.register(output, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _numbered(error: DeclarationError) -> str:
    lines = [*(str(mistake) for mistake in error.mistakes), f"{_counted(len(error.mistakes), 'mistake')} found"]
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
