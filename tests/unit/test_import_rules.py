"""One outside system, one importer: the rules that keep each stage readable on its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tailrace

PACKAGE = Path(tailrace.__file__).parent

# What is imported → the only folder of the package that may import it.
RULES = {
    "pyspark": "pipeline",
    "py4j": "pipeline",
    "confluent_kafka": "kafka",
    "redis": "store",
    "hiredis": "store",
    "sqlglot": "queries",
    "jwt": "access",
    "fastavro": "avro",
    "fastapi": "gateway",
    "starlette": "gateway",
    "uvicorn": "gateway",
    "httptools": "gateway",
    "uvloop": "gateway",
}

# Declarations are data: importing a module of views must touch nothing.
DECLARATIONS = (
    "__init__.py",
    "declarations/__init__.py",
    "declarations/app.py",
    "declarations/topics.py",
    "declarations/views.py",
    "declarations/place.py",
    "contracts/__init__.py",
    "contracts/position.py",
    "contracts/record.py",
    "contracts/partitions.py",
)


# A program that follows views needs no part of the services.
CLIENT = {"tailrace.client", "tailrace.errors", "tailrace.contracts.position", "httpx", "websockets"}


def imported_by(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_outside_system_has_one_importer(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    for name in imported_by(path):
        allowed = RULES.get(name.partition(".")[0])
        assert allowed is None or folder == allowed, f"{path} imports {name}; only {allowed}/ may"


def test_the_rules_see_the_imports_they_are_about() -> None:
    seen = {name.partition(".")[0] for path in modules() for name in imported_by(path)}
    assert {"pyspark", "confluent_kafka", "redis", "sqlglot", "fastapi", "uvicorn"} <= seen


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declarations_import_the_standard_library_and_each_other_only(name: str) -> None:
    import sys

    for module in imported_by(PACKAGE / name):
        top, _, rest = module.partition(".")
        if top == "tailrace":
            assert not rest or f"{rest.replace('.', '/')}.py" in DECLARATIONS, f"{name} imports {module}"
        else:
            assert top in sys.stdlib_module_names, f"{name} imports {module}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "client").glob("*.py")), ids=lambda path: path.name)
def test_the_client_imports_nothing_of_the_services(path: Path) -> None:
    import sys

    for module in imported_by(path):
        top = module.partition(".")[0]
        own = module in CLIENT or module.startswith("tailrace.client.")
        assert top in sys.stdlib_module_names or top in CLIENT or own, f"{path} imports {module}"


def test_services_do_not_import_the_client() -> None:
    for path in modules():
        if path.parent != PACKAGE / "client":
            assert not any(name.startswith("tailrace.client") for name in imported_by(path)), path
