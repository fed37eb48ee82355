"""Fetching the keys of an issuer, over HTTP."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from tailrace.errors import SettingError

TIMEOUT = 5.0
_LONGEST = 1024 * 1024


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because keys must come from the configured address."""

    def redirect_request(self, *_: object) -> None:
        """Refuse."""


def fetcher(url: str) -> Callable[[], bytes]:
    """A function that gets the text at a URL, and raises OSError if that fails. Raises SettingError if it is no URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        usable = False
    if not usable:
        raise SettingError(
            "--jwks: expected a URL such as https://issuer.example/.well-known/jwks.json, got another text"
        )
    opener = urllib.request.build_opener(_Stay)

    def fetch() -> bytes:
        request = urllib.request.Request(url, headers={"User-Agent": "tailrace", "Accept": "application/json"})
        try:
            with cast(http.client.HTTPResponse, opener.open(request, timeout=TIMEOUT)) as response:
                data = response.read(_LONGEST + 1)
        except http.client.HTTPException as error:
            raise OSError(f"expected an answer over HTTP, got {error!r}") from None
        if len(data) > _LONGEST:
            raise OSError(f"expected at most {_LONGEST} bytes, got more")
        return data

    return fetch
