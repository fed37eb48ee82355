"""One outside system, one importer; rooms with doors; no circles: the rules that keep each room readable on its own."""

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


# Room → the modules that other rooms may import. A room that is not here is all doors, or has a single module.
DOORS = {
    "avro": {"encoding", "registry", "schema", "writer_safety"},
    "client": {"__init__"},
    "events": {"codecs", "records", "schemas"},
    "dev": {"cache", "data", "jars", "java", "ports", "run", "template"},
    "gateway/apidocs": {"documents", "examples", "page"},
    "gateway/connection": {
        "certificate",
        "close_reasons",
        "connections",
        "doorway",
        "fanout",
        "http",
        "pace",
        "tls",
        "websocket",
        "wire",
    },
    "gateway/guard": {"access", "guard", "presence", "routes", "token_access"},
    "gateway/http/listings": {"listing_routes"},
    "gateway/live/feeds": {"registry", "subscription"},
    "gateway/live/keys": {"reads", "registry", "subscription", "sweep"},
    "gateway/live/queries": {"registry", "subscription"},
    "materializer/feeds": {"partitions"},
    "materializer/queries": {"matcher"},
    "materializer/views": {"batch", "partition", "partitions", "upkeep"},
    "pipeline/analysis": {"analysis", "check", "definitions", "explain", "resources"},
    "pipeline/source": {"decoding", "reading", "registry_schemas"},
    "queries/parser": {"conditions", "parsing", "tokens"},
    "store/connection": {"address", "outages", "scripts", "servers"},
}
MOST_MODULES = 20


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


def room_of(path: Path) -> str:
    return str(path.parent.relative_to(PACKAGE))


def by_name() -> dict[str, Path]:
    names = {}
    for path in modules():
        parts = ("tailrace", *path.relative_to(PACKAGE).with_suffix("").parts)
        names[".".join(parts).removesuffix(".__init__")] = path
    return names


def imports() -> dict[str, set[str]]:
    """Module → the modules of the package that it imports, also those that only types need."""
    names, found = by_name(), {}
    for name, path in names.items():
        found[name] = set[str]()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= (members & names.keys()) or ({node.module} & names.keys())
        found[name].discard(name)
    return found


def test_a_room_is_entered_by_its_doors() -> None:
    names, wrong = by_name(), []
    for name, imported in imports().items():
        for other in imported:
            room, doors = room_of(names[other]), DOORS.get(room_of(names[other]))
            if doors is not None and room != room_of(names[name]) and names[other].stem not in doors:
                wrong.append(f"{name} imports {other}, which is no door of {room}: one of {sorted(doors)}")
    assert not wrong, "\n".join(wrong)


def test_every_door_is_a_module_of_its_room() -> None:
    for room, doors in DOORS.items():
        there = {path.stem for path in (PACKAGE / room).glob("*.py")}
        assert doors <= there, f"{room} has no {sorted(doors - there)}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = imports()
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " → ".join((*way[way.index(name) :], name))
        if name not in done:
            for other in sorted(found[name]):
                walk(other, (*way, name))
            done.add(name)

    for name in found:
        walk(name, ())


def test_every_room_says_what_it_is_and_stays_small_enough_to_know() -> None:
    for room in {path.parent for path in modules()}:
        text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
        assert text.partition("\n")[0].endswith("."), f"{room}: expected a sentence in its __init__.py"
        assert len(list(room.glob("*.py"))) - 1 <= MOST_MODULES, f"{room}: a room of its own for a part of it?"
