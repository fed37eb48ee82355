"""Origins: which web pages may talk to the gateway from a browser.

A browser says on which page a script runs (`Origin`), and sends the user's cookies along. So a request that names a
foreign page is refused, whatever it asks for. Clients that are not browsers name none.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tailrace.access.addresses import is_address, is_loopback
from tailrace.errors import SettingError

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
# What a script may send and read in addition to what every page may.
HEADERS = "Authorization, Content-Type, Last-Event-ID, If-None-Match, Prefer, Idempotency-Key"
EXPOSED = "ETag, Location, Retry-After, Preference-Applied"
METHODS = "GET, HEAD, POST, PATCH, DELETE"
_MAX_AGE = "600"


@dataclass(frozen=True)
class Origins:
    """The pages that are allowed besides the gateway's own; `local` allows every page of this machine.

    `named` says that clients must ask for the gateway by a name of this machine. Otherwise a foreign page could make
    its own name mean this machine after it was loaded, and would count as the gateway's own.
    """

    listed: frozenset[str] = frozenset()
    any: bool = False
    local: bool = False
    named: bool = False
    credentials: bool = False

    def knows(self, host: str) -> bool:
        """Whether clients may ask for the gateway by this host. Nobody has a name without a dot in the public DNS."""
        if not self.named:
            return True
        try:
            name = urlsplit("//" + host.lower()).hostname or ""
        except ValueError:
            return False
        listed = {urlsplit(one).hostname for one in self.listed}
        return "." not in name or is_address(name) or is_loopback(name) or name in listed

    def allows(self, origin: str, host: str) -> bool:
        """Whether the page may talk to the gateway, which the browser knows as `host`."""
        found = normal(origin)
        if found is None:
            return self.any or origin in self.listed
        if self.any or found in self.listed:
            return True
        parts = urlsplit(found)
        if self.local and is_loopback(parts.hostname or ""):
            return True
        return normal(f"{parts.scheme}://{host}") == found

    def headers(self, origin: str) -> dict[str, str]:
        """The headers that let a browser hand an answer to an allowed page."""
        found = {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED, "Vary": "Origin"}
        if self.credentials and not self.any:
            found["Access-Control-Allow-Credentials"] = "true"
        return found

    def preflight(self, origin: str) -> dict[str, str]:
        """The answer to a browser that asks first."""
        return {
            **self.headers(origin),
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": HEADERS,
            "Access-Control-Max-Age": _MAX_AGE,
        }


def read_origins(text: str, *, local: bool = False, named: bool = False, credentials: bool = False) -> Origins:
    """The origins that a setting lists, separated by commas. Raises SettingError."""
    listed = [one.strip() for one in text.split(",") if one.strip()]
    if "*" in listed:
        if credentials:
            raise SettingError("--origins: expected the origins by name if tokens come in a cookie, got *")
        return Origins(any=True)
    found = set()
    for one in listed:
        origin = one if one == "null" else normal(one)
        if origin is None or one.count("/") > 2:
            raise SettingError(f"--origins: expected origins such as https://app.example.com, got {one!r}")
        found.add(origin)
    return Origins(frozenset(found), local=local, named=named, credentials=credentials)


def normal(origin: str) -> str | None:
    """The one spelling of an origin; None if it is none, such as `null`."""
    try:
        parts = urlsplit(origin.lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")
