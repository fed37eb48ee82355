"""The user's cache: files that can be fetched or made again, which takes a while."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def user_cache(what: str, environment: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/tailrace/<what>`, or the same below `~/.cache`."""
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home, "tailrace", what)
