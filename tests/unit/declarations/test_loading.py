"""Loading "module:app": distinct errors for no such module, a module that raises, and no such app."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.declarations.loading import app_name, load_app
from tailrace.errors import LoadingError


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module in the current directory that declares `app`."""
    name = f"movies_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text("from tailrace import App\napp = App('movies')\nnumber = 5\n")
    monkeypatch.chdir(tmp_path)
    return name


def test_an_app_is_found_in_the_current_directory(module: str) -> None:
    assert load_app(f"{module}:app").name == "movies"
    assert app_name(f"{module}:app") == "movies" and app_name("movies") == "movies"


def test_a_reference_without_a_colon_is_explained(module: str) -> None:
    with pytest.raises(LoadingError, match="MODULE:APP"):
        load_app(module)


def test_a_path_is_explained(module: str) -> None:
    with pytest.raises(LoadingError, match=r"leave out \.py"):
        load_app(f"{module}.py:app")


def test_a_missing_module_is_not_told_as_a_module_that_raised() -> None:
    with pytest.raises(LoadingError, match="no module 'nowhere_to_be_found'"):
        load_app("nowhere_to_be_found:app")


def test_a_module_that_raises_shows_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_at_import.py").write_text("import missing_dependency_of_the_module\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadingError, match="raised while it was imported") as caught:
        load_app("raises_at_import:app")
    assert "raises_at_import.py" in str(caught.value) and "missing_dependency_of_the_module" in str(caught.value)


def test_a_missing_app_names_those_that_are_there(module: str) -> None:
    with pytest.raises(LoadingError, match="it has app"):
        load_app(f"{module}:number")
