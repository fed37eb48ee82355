"""Tells operators which rights are refused because they can't be understood."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

# The same refusal is logged once in so many seconds, because clients ask again.
_PAUSE = 60.0
_MOST = 1000
_told: dict[tuple[str, str, str], float] = {}


def tell(kind: str, name: str, why: str) -> None:
    """Log that rights on a view, a feed or a topic are refused. `why` holds no value of a token."""
    now, what = time.monotonic(), (kind, name[:100], why[:300])
    if now - _told.get(what, -_PAUSE) < _PAUSE:
        return
    if len(_told) >= _MOST:
        _told.clear()
    _told[what] = now
    log.warning("rights=refused kind=%s name=%r reason=%r", *what)
