"""The route by which clients write events to topics that accept them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from tailrace.access.identity import Identity
from tailrace.avro.schema import Unwritable
from tailrace.contracts.catalog import CatalogTopic
from tailrace.errors import RegistryError, Unreachable
from tailrace.events.codecs import FORMATS, TopicCodecs
from tailrace.events.records import MOST, CheckedEvents, NotEvents, read_events
from tailrace.events.schemas import Unregistered
from tailrace.gateway.apidocs import examples
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.guard.access import identity_of
from tailrace.gateway.paths import decoded
from tailrace.gateway.problems import NO_KAFKA, RETRY_AFTER, Problem, no_catalog, shutting_down, unavailable
from tailrace.kafka.async_delivery import Full, Unwritten, Written

JSON = "application/json"
RECORDS = "application/vnd.tailrace.records+json"
LARGEST = 4 * 1024 * 1024
_LONGEST_ONCE = 200
# Longer bodies are checked in another thread.
_MUCH = 16 * 1024


def router(gateway: Gateway) -> APIRouter:
    routes = APIRouter(tags=["topics"])

    @routes.post(
        "/topics/{topic}/events",
        summary="Write events",
        status_code=202,
        response_class=Response,
        response_model=None,
        responses=examples.EVENTS_IN,
        openapi_extra={"requestBody": examples.EVENTS_BODY},
    )
    async def write(
        request: Request,
        topic: Annotated[str, Path(description="The name of a topic or table.", examples=["ratings"])],
        key: Annotated[
            str | None, Query(description="The key of every event: which partition, and of a table which row.")
        ] = None,
        idempotency_key: Annotated[
            str | None,
            Header(
                description="Tells this request from others: the record header `idempotency-key`, which "
                '`.dedupe(header="idempotency-key")` knows a repetition by.',
            ),
        ] = None,
    ) -> Response:
        """Write an event, or an array of them, to a topic that is declared with `accept=True`.

        Each event is checked against the declared schema: if one is wrong, none is written. The answer comes
        when Kafka has the events, with the partition and offset of each. A lookup with
        `at_least=topic:partition:offset` then waits until a view has taken that event in.
        """
        declared = _accepting(gateway, decoded(topic, "topic"), identity_of(request.scope))
        wrapped = _wrapped(request.headers.get("content-type", ""))
        if idempotency_key is not None and not 0 < len(idempotency_key) <= _LONGEST_ONCE:
            raise _unusable("Idempotency-Key", f"1 to {_LONGEST_ONCE} characters", f"{len(idempotency_key)}")
        codecs = await _codecs(gateway, declared)
        body = await _body(request)
        read = partial(_read, body=body, wrapped=wrapped, key=key, once=idempotency_key)
        events = await read(codecs)
        if events.problems and (newer := await gateway.event_schemas.newer(codecs)) is not None:
            events = await read(newer)
        if events.problems:
            raise _refused(declared, events)
        if not gateway.events_in.served:
            raise unavailable("no Kafka", "Start the gateway with --kafka.", expected="a gateway that knows Kafka")
        if gateway.connections.draining:
            raise shutting_down("Send it again: another gateway takes it, or this one when it is back.")
        try:
            written = await gateway.events_in.write(events.records)
        except Full:
            raise unavailable(
                "no room", "Send it again in a moment: nothing of it was written.", got="the queue to Kafka is full"
            ) from None
        return _answer(gateway, declared.name, written, once=idempotency_key is not None)

    return routes


def _accepting(gateway: Gateway, name: str, identity: Identity | None) -> CatalogTopic:
    known = gateway.known
    if not known.loaded:
        raise no_catalog(known.problem)
    topic = known.topics.get(name)
    accepting = gateway.access.known_names(identity, "topic", (one.name for one in known.topics.values() if one.accept))
    if topic is None:
        raise Problem(
            404,
            "unknown topic",
            topic=name,
            expected=accepting,
            remedy="Take one of the expected topics, or declare this one with accept=True and start the pipeline.",
        )
    if not topic.accept:
        raise Problem(
            403,
            "closed topic",
            topic=name,
            expected=accepting,
            remedy="Declare it with accept=True and start the pipeline; other topics take no events from clients.",
        )
    return topic


async def _codecs(gateway: Gateway, topic: CatalogTopic) -> TopicCodecs:
    """The codecs of a topic. Only the log names the address of a registry, and no answer does."""
    try:
        found = await gateway.event_schemas.codecs(topic)
    except Unregistered:
        raise unavailable(
            "no registry", "Start the gateway with --registry.", expected="a gateway that knows the schema registry"
        ) from None
    except Unreachable:
        raise unavailable(
            "registry away",
            "Send it again in a moment: nothing of it was written.",
            topic=topic.name,
            expected="the schema registry, which has the topic's schema",
            got="no answer",
        ) from None
    except RegistryError:
        raise Problem(
            502,
            "no schema",
            topic=topic.name,
            expected="an Avro schema for the topic in the schema registry",
            got="none that can be used; the gateway's log says why",
            remedy=f"Register one under the subject {topic.name}-value, or -key for its keys.",
        ) from None
    except Unwritable as reason:
        raise Problem(
            501,
            "unsupported schema",
            topic=topic.name,
            expected="an Avro schema that the pipeline can read",
            got=f"another one: {reason}",
            remedy="Correct the schema of the topic.",
        ) from None
    if found is None:
        raise Problem(
            501,
            "unsupported format",
            topic=topic.name,
            expected=f"values and keys in one of the formats {', '.join(FORMATS)}, by a pipeline of this version",
            got=f"values: {topic.format}, keys: {topic.key_format}",
            remedy="Start the pipeline of this version, or write to this topic with a Kafka client.",
        )
    return found


async def _read(codecs: TopicCodecs, body: bytes, *, wrapped: bool, key: str | None, once: str | None) -> CheckedEvents:
    read = partial(read_events, codecs, body, wrapped=wrapped, key=key, once=once)
    try:
        return await asyncio.to_thread(read) if len(body) > _MUCH else read()
    except NotEvents as error:
        expected = f"an event as JSON, or an array of 1 to {MOST} of them"
        raise _unusable("body", expected, str(error)) from None


def _wrapped(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    if kind in (JSON, RECORDS):
        return kind == RECORDS
    # A page of another site can make a browser send what forms send, but not this media type.
    raise Problem(
        415,
        "unsupported media type",
        expected=[JSON, RECORDS],
        got=kind[:200] or "none",
        remedy="Send the header Content-Type: application/json.",
    )


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST:
            raise Problem(
                413,
                "body too long",
                headers={"Connection": "close"},
                expected=f"at most {LARGEST} bytes",
                got="more",
                remedy="Send fewer events at a time.",
            )
        parts.append(part)
    return b"".join(parts)


def _unusable(what: str, expected: str, got: str) -> Problem:
    return Problem(400, f"unusable {what}", expected=expected, got=got[:300], remedy="See /docs.")


def _refused(topic: CatalogTopic, events: CheckedEvents) -> Problem:
    return Problem(
        422,
        "unusable events",
        topic=topic.name,
        problems=events.problems,
        remedy="Correct them and send all again: none was written. /docs has the topic's schema.",
    )


def _answer(gateway: Gateway, topic: str, written: Sequence[Written | Unwritten], *, once: bool) -> Response:
    failed = [one for one in written if isinstance(one, Unwritten)]
    records = [
        {"partition": one.partition, "offset": one.offset}
        if isinstance(one, Written)
        else {"error": NO_KAFKA if gateway.kafka.problems() else one.error, "unsure": one.unsure}
        for one in written
    ]
    gateway.metrics.events_in(len(written) - len(failed), len(failed))
    if not failed:
        return JSONResponse({"topic": topic, "records": records}, 202, {"Cache-Control": "no-store"})
    retry = all(one.retry for one in failed)
    raise Problem(
        503 if retry else 502,
        "not all written" if len(failed) < len(written) else "not written",
        headers=RETRY_AFTER if retry else None,
        topic=topic,
        records=records,
        # An event's place in the request is part of its identity: sent alone, it would count as another event.
        remedy="Send the whole request again, with the same Idempotency-Key: what is in Kafka already is told by it."
        if once
        else "Send those with an error again. One that is `unsure` may be in Kafka already: an Idempotency-Key and "
        '.dedupe(header="idempotency-key") make a repetition harmless.',
    )
