"""The texts of the store's scripts: each is one step that Redis takes whole or not at all."""

from __future__ import annotations

from importlib.resources import files


def script_text(name: str) -> str:
    """What stands in the file of a script."""
    return (files("tailrace.store") / f"{name}.lua").read_text()
