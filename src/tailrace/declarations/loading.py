"""From "module:app" to an App."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from tailrace.declarations.app import App
from tailrace.errors import LoadingError


def load_app(reference: str) -> App:
    """Import the module and return its App. Searches the current directory first, like `python -m`."""
    module_name, colon, attribute = reference.partition(":")
    if not module_name or not colon or not attribute:
        raise LoadingError(f"expected MODULE:APP such as movies:app, got {reference!r}")
    if module_name.endswith(".py") or "/" in module_name:
        raise LoadingError(
            f"expected a module name such as movies:app, got the path {module_name!r}: "
            "go to the file's directory and leave out .py"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise LoadingError(
                f"no module {module_name!r} in {here} or among the installed packages: "
                "run the command in the directory that holds the module"
            ) from None
        raise LoadingError(_raised(module_name)) from error
    except Exception as error:
        raise LoadingError(_raised(module_name)) from error
    found = getattr(module, attribute, None)
    if isinstance(found, App):
        return found
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    hint = f"it has {', '.join(apps)}" if apps else "it declares none; write: app = App('movies')"
    got = "nothing" if found is None else f"a {type(found).__name__}"
    raise LoadingError(f"expected an App named {attribute!r} in module {module_name!r}, got {got}: {hint}")


def app_name(reference: str) -> str:
    """The name of an app, from the name itself (`movies`) or from "module:app"."""
    return load_app(reference).name if ":" in reference else reference


def _raised(module_name: str) -> str:
    lines = traceback.format_exc().rstrip().splitlines()
    return f"module {module_name!r} raised while it was imported:\n" + "\n".join(lines[-8:])
