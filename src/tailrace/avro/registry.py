"""The schema registry: Avro schemas by subject and by id, over the Confluent API.

Nothing is retried here: callers start again with backoff. No error or log holds a password or token.
"""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import quote

from tailrace.avro.names import Definition, definitions, inlined
from tailrace.avro.registry_config import RegistryConfig
from tailrace.avro.registry_link import TIMEOUT, RegistryLink, strange
from tailrace.errors import RegistryError, SchemaRefused
from tailrace.settings import Settings

log = logging.getLogger(__name__)


class Registry:
    """A registry, over a link to it.

    Each method raises Unreachable if no answer comes in time, or if the registry does not let this process in;
    RegistryError if the registry refuses, and SchemaRefused if a schema is not Avro or lacks a type that it refers to.
    """

    def __init__(self, link: RegistryLink) -> None:
        self._link = link
        self._references: dict[tuple[str, int], dict[str, Definition]] = {}

    @classmethod
    def at(cls, url: str, *, timeout: float = TIMEOUT) -> Registry:
        """By its URL, such as `http://user:password@localhost:8081`. Raises RegistryError if it can't be used."""
        return cls(RegistryLink(lambda: RegistryConfig.of_url(url), timeout))

    @classmethod
    def of(cls, settings: Settings, *, timeout: float = TIMEOUT) -> Registry | None:
        """The registry that a process's settings name; None if they name none. Raises SettingError or RegistryError."""
        if RegistryConfig.of(settings) is None:
            return None

        def read() -> RegistryConfig:
            found = RegistryConfig.of(settings)
            assert found is not None  # noqa: S101 settings do not change
            return found

        return cls(RegistryLink(read, timeout))

    @property
    def address(self) -> str:
        """Its URL, without user and password."""
        return self._link.address

    def latest(self, subject: str) -> tuple[int, str]:
        """The id and the text of the newest schema of a subject. Raises RegistryError if there is no such subject."""
        answer = self._object(f"subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise self._no_subject(subject)
        return self._id(answer), self._text(answer, f"the newest schema of {subject!r}")

    def versions(self, subject: str) -> dict[int, str]:
        """All schemas of a subject by id. A schema that can't be used is logged and left out."""
        listed = self._link.ask(f"subjects/{quote(subject, safe='')}/versions")
        if listed is None:
            raise self._no_subject(subject)
        if not isinstance(listed, list):
            raise self._strange("an answer of another shape")
        found: dict[int, str] = {}
        for version in listed:
            answer = self._object(f"subjects/{quote(subject, safe='')}/versions/{version}")
            if answer is None:
                continue
            try:
                found[self._id(answer)] = self._text(answer, f"version {version} of {subject!r}")
            except SchemaRefused as error:
                log.warning("%s", error)
        return found

    def by_id(self, id: int) -> str | None:
        """The schema of an id; None if the registry has none."""
        answer = self._object(f"schemas/ids/{id}")
        return None if answer is None else self._text(answer, f"the schema of id {id}")

    def _text(self, answer: dict[str, Any], what: str) -> str:
        """The schema of an answer, with the types that it refers to inlined."""
        schema = self._parsed(answer, what)
        try:
            referenced = self._referenced(answer, what, ())
            return json.dumps(inlined(schema, referenced)) if referenced else str(answer["schema"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._no_schema(what) from None

    def _parsed(self, answer: dict[str, Any], what: str) -> Any:
        kind = answer.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise SchemaRefused(
                f"{what} in the registry at {self.address}: expected an Avro schema, got one of type {kind}; "
                "register an Avro schema, or read the topic with another format"
            )
        try:
            schema = json.loads(answer["schema"])
            if isinstance(schema, str | dict | list):
                return schema
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise self._no_schema(what)

    def _referenced(
        self, answer: dict[str, Any], what: str, path: tuple[tuple[str, int], ...]
    ) -> dict[str, Definition]:
        """The named types of all schemas that an answer refers to, and of those that they refer to."""
        found: dict[str, Definition] = {}
        for reference in answer.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            if (subject, version) in path:
                raise SchemaRefused(
                    f"{what} in the registry at {self.address}: expected references without a circle, got one through "
                    f"version {version} of {subject!r}; register it anew without"
                )
            if (subject, version) not in self._references:
                theirs = f"version {version} of {subject!r}"
                referred = self._object(f"subjects/{quote(subject, safe='')}/versions/{version}")
                if referred is None:
                    raise SchemaRefused(
                        f"{what} in the registry at {self.address}: expected {theirs}, which it refers to, got "
                        "nothing; register that version again"
                    )
                types = self._referenced(referred, theirs, (*path, (subject, version)))
                types.update(definitions(self._parsed(referred, theirs)))
                self._references[subject, version] = types
            found.update(self._references[subject, version])
        return found

    def _no_schema(self, what: str) -> SchemaRefused:
        return SchemaRefused(
            f"{what} in the registry at {self.address}: expected an Avro schema as JSON text, got another text; "
            "register it anew"
        )

    def _no_subject(self, subject: str) -> RegistryError:
        return RegistryError(
            f"expected the subject {subject!r} in the registry at {self.address}, got none; register a schema for it, "
            "or give the topic schema=…"
        )

    def _id(self, answer: dict[str, Any]) -> int:
        if isinstance(id := answer.get("id"), int) and 0 <= id < 2**31:
            return id
        raise self._strange("a schema without a usable id")

    def _object(self, path: str) -> dict[str, Any] | None:
        answer = self._link.ask(path)
        if answer is None or isinstance(answer, dict):
            return answer
        raise self._strange("an answer of another shape")

    def _strange(self, got: str) -> RegistryError:
        return strange(self.address, got)
