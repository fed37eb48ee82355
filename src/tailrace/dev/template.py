"""The files that `tailrace init` writes: a first module, and a producer to feed it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tailrace.errors import SettingError

FILES = ("movies.py", "produce.py")


def write_template(directory: Path) -> list[Path]:
    """Write the files and return their paths. Writes nothing if one of them exists."""
    targets = [directory / name for name in FILES]
    for target in targets:
        if target.exists():
            raise SettingError(f"{target} exists: expected a directory without {' and '.join(FILES)}; name another one")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for target in targets:
            text = (files("tailrace.dev") / "first" / f"{target.name}.txt").read_text(encoding="utf-8")
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise SettingError(f"can't write to {directory}: {error.strerror}; name another directory") from None
    return targets
