"""Fixtures for every tier."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import Phase, settings

from registry_server import RegistryServer
from run_watch import RunWatch
from running import Tailrace
from secured_kafka import Secured
from services import NewBroker, NewRedis, Services
from tailrace.dev.broker import Broker
from tailrace.dev.ports import take_from_share
from tailrace.dev.redis_server import RedisServer

_EXAMPLES = 2
_SHARES = 16
# Tests whose JVMs keep the machine busy, tests that mostly wait, and quick tests.
_KINDS = ({"attack", "failure", "journey"}, {"conformance", "service"}, {"unit"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that `scripts/campaign` turns up."""
    group = parser.getgroup("campaign")
    group.addoption("--examples", type=int, default=_EXAMPLES, help="random histories through a running pipeline")
    group.addoption("--kills", type=int, default=1, help="how often the pipeline is killed while records flow")
    group.addoption("--seed", type=int, default=1, help="of the moments at which something is killed")
    group.addoption("--soak", type=float, default=0, help="minutes that clients of every kind come and go")
    group.addoption(
        "--every-kind", action="store_true", help="break a view of every kind, and in micro-batch mode, too"
    )
    group.addoption("--written-examples", action="store_true", help="try the examples that are written down, no others")


def pytest_configure(config: pytest.Config) -> None:
    """Make the ordinary run try the same examples every time; `scripts/campaign` tries others."""
    ordinary = config.getoption("--examples") == _EXAMPLES
    # The machine is shared, so how long an example takes says nothing.
    settings.register_profile("ordinary", derandomize=True, deadline=None)
    settings.register_profile("campaign", print_blob=True, deadline=None)
    settings.register_profile("written", phases=(Phase.explicit,), deadline=None)
    written = config.getoption("--written-examples")
    settings.load_profile("written" if written else "ordinary" if ordinary else "campaign")
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) is not None:
        # Workers that replace dead ones have higher numbers.
        take_from_share(int(worker.removeprefix("gw")) % _SHARES, _SHARES)
    elif ordinary:
        config.pluginmanager.register(RunWatch(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread the files of busy tests over the run, from its start. Side by side they would wait for each other."""
    if not config.getoption("--every-kind"):
        for item in items:
            if (marker := item.get_closest_marker("campaign")) is not None:
                item.add_marker(pytest.mark.skip(reason=f"in scripts/campaign; {marker.args[0]}"))
    if not config.getoption("--soak"):
        for item in items:
            if item.get_closest_marker("soak") is not None:
                item.add_marker(pytest.mark.skip(reason="in scripts/campaign --soak MINUTES"))
    tests = Path(__file__).parent
    files = list(dict.fromkeys(item.path for item in items))
    place: dict[Path, float] = {}
    for tiers in _KINDS:
        kind = [file for file in files if file.relative_to(tests).parts[0] in tiers]
        place.update((file, 1 if "unit" in tiers else number / len(kind)) for number, file in enumerate(kind))
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(scope="session")
def examples(request: pytest.FixtureRequest) -> int:
    """How many random histories a test sends through a pipeline. Tests without a pipeline take a multiple."""
    found: int = request.config.getoption("--examples")
    return found


@pytest.fixture(scope="session")
def _services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    services = Services(tmp_path_factory.mktemp("services"))
    yield services
    services.stop()


@pytest.fixture(scope="session")
def broker(_services: Services) -> Broker:
    """The broker of the run, with `.address`; use topics named with `fresh`, and leave it running."""
    return _services.broker()


@pytest.fixture(scope="session")
def redis_server(_services: Services) -> RedisServer:
    """The Redis of the run, with `.url`; use prefixes made with `fresh`, and leave it running."""
    return _services.redis()


@pytest.fixture(scope="session")
def registry(_services: Services) -> RegistryServer:
    """The schema registry of the run, with `.url`; use subjects named with `fresh`, and leave it running."""
    return _services.registry()


@pytest.fixture(scope="session")
def secured(_services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with a listener for every way to connect; use topics named with `fresh`, and leave it running."""
    secured = Secured(tmp_path_factory.mktemp("secured"), _services)
    yield secured
    secured.stop()


@pytest.fixture
def fresh() -> str:
    """A suffix of this test alone, for topics, apps and prefixes."""
    return uuid4().hex[:10]


@pytest.fixture
def _private(tmp_path: Path) -> Iterator[Services]:
    services = Services(tmp_path)
    yield services
    services.stop()


@pytest.fixture
def new_broker(_private: Services) -> NewBroker:
    """Starts a broker that the test may stop, kill and start again."""
    return _private.broker


@pytest.fixture
def new_redis(_private: Services) -> NewRedis:
    """Starts a Redis that the test may stop, kill and start again."""
    return _private.redis


@pytest.fixture
def tailrace(tmp_path: Path, broker: Broker, redis_server: RedisServer, fresh: str) -> Iterator[Tailrace]:
    """An app of average ratings on the run's broker and Redis; the test starts the processes it needs."""
    app = Tailrace(tmp_path / "app", broker, redis_server, fresh)
    yield app
    app.stop()
