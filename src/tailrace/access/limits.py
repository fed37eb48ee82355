"""Limits: what one client may take, so that there is enough for all."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.access.refused import Refused

# A client may connect this many times its rate per second at once, because pages open several streams.
BURST = 10


@dataclass(frozen=True)
class Limits:
    """Each is a setting: see docs/settings.md. A `user` is the subject of a token, or an address if there is none."""

    connections: int = 20_000
    user_connections: int = 100
    connects: int = 10
    messages: int = 50
    subscriptions: int = 1_000
    keys: int = 10_000
    connection_keys: int = 20_000
    key_bytes: int = 65_535
    body_bytes: int = 1_048_576
    message_bytes: int = 1_048_576
    requests: int = 20_000
    user_requests: int = 100
    lookups: int = 500
    unread_bytes: int = 268_435_456
    user_unread_bytes: int = 33_554_432
    stream_bytes: int = 268_435_456
    user_stream_bytes: int = 8_388_608
    followed_bytes: int = 1_073_741_824
    user_followed_bytes: int = 33_554_432
    query_cost: int = 1_000_000
    user_query_cost: int = 5_000

    def check_keys(self, keys: int, longest: int) -> None:
        """Raise Refused if a client asks for too many keys at once, or for one that is too long."""
        if keys > self.keys:
            raise Refused(
                413,
                "too many keys",
                expected=f"at most {self.keys} keys in one subscription",
                got=str(keys),
                remedy="Ask in several subscriptions, or with a query; the gateway's --limit-keys sets the limit.",
            )
        if longest > self.key_bytes:
            raise Refused(
                414,
                "key too long",
                expected=f"a key of at most {self.key_bytes} bytes",
                got=f"{longest} bytes",
                remedy="Check the key; the gateway's --limit-key-bytes sets the limit.",
            )

    def check_room(self, keys: int) -> None:
        """Raise Refused if the subscriptions of one connection follow too many keys together."""
        if keys > self.connection_keys:
            raise Refused(
                413,
                "too many keys on a connection",
                expected=f"at most {self.connection_keys} keys in all subscriptions of a connection",
                got=str(keys),
                remedy="Unsubscribe what you do not need, follow a query, or open another connection; the gateway's "
                "--limit-connection-keys sets the limit.",
            )


def too_many(what: str, expected: str, got: str, wait: float) -> Refused:
    """A 429: the same request may succeed later."""
    return Refused(
        429,
        f"too many {what}",
        expected=expected,
        got=got,
        remedy="Try again later, with a growing pause between tries.",
        retry_after=max(1, round(wait + 0.5)),
    )
