"""The header `Prefer: wait=N`, as RFC 7240 spells it."""

from __future__ import annotations

import re

from tailrace.gateway.http.waits import LONGEST

_WAIT = re.compile(r'\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;.*)?', re.ASCII | re.IGNORECASE)


def wait_seconds(prefer: str | None) -> int | None:
    """For how many seconds the client is ready to wait; None where it does not say so. The first preference counts."""
    for preference in (prefer or "").split(","):
        if (found := _WAIT.fullmatch(preference)) is not None:
            return min(int(found[1]), int(LONGEST))
    return None
