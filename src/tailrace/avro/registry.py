"""The schema registry: Avro schemas by subject and by id, over the Confluent API.

Nothing is retried here: callers start again with backoff. No error or log holds the user or password of the URL.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import urllib.error
import urllib.request
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit

from tailrace.avro.names import Definition, definitions, inlined
from tailrace.errors import RegistryError, SchemaRefused, Unreachable

log = logging.getLogger(__name__)

TIMEOUT = 10.0
_LONGEST = 16 * 1024 * 1024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
# The API's own codes for a subject, a version and a schema that it lacks. Any other 404 does not come from a
# registry: a wrong path must not make good records malformed.
_ABSENT = frozenset({40401, 40402, 40403})
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


class Registry:
    """A registry by its URL, such as `http://user:password@localhost:8081`.

    Raises RegistryError if the URL can't be used. Each method raises Unreachable if no answer comes in time,
    RegistryError if the registry refuses, and SchemaRefused if a schema is not Avro or lacks a type that it
    refers to.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._authorization: str | None = None
        self._references: dict[tuple[str, int], dict[str, Definition]] = {}
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            # The text may hold a password anywhere.
            raise RegistryError(
                "--registry: expected a URL such as http://localhost:8081 or https://user:password@host/path, got "
                "another text; percent-encode special characters in the user and the password"
            )
        user, at, host = parts.netloc.rpartition("@")
        if at:
            name, _, password = user.partition(":")
            credentials = f"{unquote(name)}:{unquote(password)}".encode()
            self._authorization = "Basic " + base64.b64encode(credentials).decode()
        self.address = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"

    def latest(self, subject: str) -> tuple[int, str]:
        """The id and the text of the newest schema of a subject. Raises RegistryError if there is no such subject."""
        answer = self._object(f"subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise self._no_subject(subject)
        return self._id(answer), self._text(answer, f"the newest schema of {subject!r}")

    def versions(self, subject: str) -> dict[int, str]:
        """All schemas of a subject by id. A schema that can't be used is logged and left out."""
        listed = self._ask(f"subjects/{quote(subject, safe='')}/versions")
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
        answer = self._ask(path)
        if answer is None or isinstance(answer, dict):
            return answer
        raise self._strange("an answer of another shape")

    def _ask(self, path: str) -> Any:
        """The answer to a request; None if the registry says that it has no such thing."""
        request = urllib.request.Request(f"{self.address}/{path}", headers={"Accept": _ACCEPT})
        if self._authorization is not None:
            # If the registry redirects, the new address does not get the password.
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with cast(http.client.HTTPResponse, urllib.request.urlopen(request, timeout=self._timeout)) as response:
                body = response.read(_LONGEST)
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Unreachable(
                f"no schema registry answers at {self.address} ({reason or type(error).__name__}): start it, or "
                "correct --registry"
            ) from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self._strange("an answer that is not JSON") from None

    def _refused(self, error: urllib.error.HTTPError) -> None:
        if error.code in (401, 403):
            raise RegistryError(
                f"the schema registry at {self.address} answered {error.code}: expected a user that may read schemas, "
                f"got {'none' if self._authorization is None else 'another one'}; give "
                "--registry https://user:password@host"
            )
        if error.code in _PASSING:
            raise Unreachable(f"the schema registry at {self.address} answered {error.code}: look at its log")
        try:
            code = json.loads(error.read(_LONGEST)).get("error_code")
        except (ValueError, AttributeError, OSError, http.client.HTTPException, RecursionError):
            code = None
        if error.code != 404 or code not in _ABSENT:
            raise self._strange(f"{error.code}")

    def _strange(self, got: str) -> RegistryError:
        return RegistryError(
            f"expected a schema registry with the Confluent API at {self.address}, got {got}; correct --registry: some "
            "registries have that API below a path, such as /apis/ccompat/v7"
        )
