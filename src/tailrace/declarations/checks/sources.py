"""Mistakes in topics, tables and their steps."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.declarations.app import App
from tailrace.declarations.mistakes import Mistake, of_column_name, of_duration, of_name
from tailrace.declarations.place import Place
from tailrace.declarations.topics import Dedupe, Step, Table, Topic, WithColumns
from tailrace.declarations.views import Changelog, Source

# Formats of a single value.
PLAIN_FORMATS = ("string", "long", "double", "bytes")
FORMATS = ("json", "avro", *PLAIN_FORMATS)


def of_sources(app: App) -> Iterator[Mistake]:
    """Mistakes in declarations with app.topic and app.table, and in the steps between them and views and feeds."""
    seen: dict[str, Topic | Table] = {}
    for source in app.topics:
        topic, subject = records(source), subject_of(source)
        yield from of_name(topic.place, "topic", topic.name)
        yield from _of_value(topic, subject)
        yield from _of_key(topic, subject)
        if isinstance(source, Table):
            yield from _of_table(source, subject)
        if (first := seen.setdefault(topic.name, source)) is not source:
            yield Mistake(
                topic.place,
                subject,
                "each topic declared once",
                f"a second declaration (the first is at {first.place})",
                "Keep one of them and use it for every view.",
            )
    yield from _of_steps(app)


def records(source: Topic | Table) -> Topic:
    """The topic that a source reads."""
    return source.records if isinstance(source, Table) else source


def steps_of(source: Source) -> tuple[Step, ...]:
    """The steps that a source goes through."""
    return source.steps if isinstance(source, Changelog) else records(source).steps


def subject_of(source: Source) -> str:
    """The subject of a message about a source."""
    if isinstance(source, Changelog):
        return f"view {source.view.name!r}"
    return f"{'table' if isinstance(source, Table) else 'topic'} {source.name!r}"


def _of_value(topic: Topic, subject: str) -> Iterator[Mistake]:
    if topic.format not in FORMATS:
        expected = f"a format out of {', '.join(FORMATS)}"
        yield Mistake(topic.place, subject, expected, repr(topic.format), "Choose one of these.")
    elif topic.format == "avro":
        if topic.schema is None and not topic.registry:
            remedy = 'Give schema="ratings.avsc", the schema itself as JSON text, or registry=True.'
            yield Mistake(topic.place, subject, "an Avro schema or a schema registry", "neither", remedy)
        if topic.value is not None:
            remedy = "Leave value=… out: the columns are those of the Avro schema."
            yield Mistake(topic.place, subject, "schema=… alone", f"value={topic.value!r}", remedy)
    else:
        if topic.value is None:
            remedy = 'Such as value="movie_id long, rating double".'
            yield Mistake(topic.place, subject, "a schema of the value", "none", remedy)
        if topic.schema is not None:
            remedy = 'Describe the value with value=…, or choose format="avro".'
            got = f"schema=… with the format {topic.format!r}"
            yield Mistake(topic.place, subject, "schema=… with the format 'avro' only", got, remedy)
    if topic.registry and "avro" not in (topic.format, topic.key_format):
        got, remedy = f"the formats {topic.format!r} and {topic.key_format!r}", 'Choose format="avro".'
        yield Mistake(topic.place, subject, "Avro values or keys, because of registry=True", got, remedy)


def _of_key(topic: Topic, subject: str) -> Iterator[Mistake]:
    if topic.key_format not in FORMATS:
        expected = f"a key_format out of {', '.join(FORMATS)}"
        yield Mistake(topic.place, subject, expected, repr(topic.key_format), "Choose one of these.")
    elif topic.key_format in PLAIN_FORMATS:
        if topic.key_schema is not None:
            got = f"key_schema=… with the key_format {topic.key_format!r}"
            remedy = 'Leave key_schema=… out, or choose key_format="json" or "avro".'
            yield Mistake(topic.place, subject, "a plain key", got, remedy)
    elif topic.key_schema is None and not (topic.registry and topic.key_format == "avro"):
        example = "movie_id long" if topic.key_format == "json" else "key.avsc"
        remedy = f'Such as key_schema="{example}".'
        yield Mistake(topic.place, subject, f"a schema of the key, which is {topic.key_format}", "none", remedy)


def _of_table(table: Table, subject: str) -> Iterator[Mistake]:
    if not table.key or not all(table.key):
        remedy = 'Say which column the record key becomes, such as key="movie_id".'
        yield Mistake(table.place, subject, "a key", "none", remedy)
    elif table.records.key_format in PLAIN_FORMATS and len(table.key) != 1:
        remedy = 'Name one, or choose key_format="json" or "avro" with key_schema=….'
        yield Mistake(table.place, subject, "one key column for a plain record key", f"{', '.join(table.key)}", remedy)
    for name in table.key:
        yield from of_column_name(table.place, subject, name)


def _of_steps(app: App) -> Iterator[Mistake]:
    """Mistakes in the columns that steps add. A step that several views share is reported once."""
    used = [source for output in app.outputs for _, source in output.sources if _is_source(source)]
    told: set[tuple[str, Step]] = set()
    for source in used:
        subject = subject_of(source)
        for step in steps_of(source):
            if (subject, step) not in told:
                told.add((subject, step))
                yield from _of_step(step, subject)
    chains: set[tuple[str, tuple[Step, ...]]] = set()
    for source in used:
        chain = (subject_of(source), steps_of(source))
        found = [step for step in chain[1] if isinstance(step, Dedupe)]
        if chain in chains:
            continue
        chains.add(chain)
        for step in found[1:]:
            got = f"a second one (the first is at {found[0].place})"
            remedy = "Keep one of them; it may have several columns."
            yield Mistake(step.place, chain[0], "one dedupe at most", got, remedy)


def _of_step(step: Step, subject: str) -> Iterator[Mistake]:
    if isinstance(step, WithColumns):
        for name, _ in step.columns:
            yield from of_column_name(step.place, subject, name)
    elif isinstance(step, Dedupe):
        yield from _of_dedupe(step.place, subject, step)


def _of_dedupe(place: Place, subject: str, step: Dedupe) -> Iterator[Mistake]:
    if step.by and step.header is not None:
        remedy = "Keep one of them; a header may be a column, too: .with_columns(message=\"_headers['id']\")."
        yield Mistake(place, subject, "an id in columns or in a header", "both by=… and header=…", remedy)
    yield from of_duration(place, subject, "within", step.within)


def _is_source(found: object) -> bool:
    return isinstance(found, Topic | Table | Changelog)
