"""An app with one view whose changelog the test writes, and records that flow into it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowing import Load
from materializing import Changelog
from tailrace.dev.broker import Broker
from tailrace.store.layout.keys import default_prefix


@pytest.fixture
def log(broker: Broker, fresh: str) -> Changelog:
    log = Changelog(broker, fresh)
    log.prefix = default_prefix(log.app)
    return log


@pytest.fixture
def load(log: Changelog) -> Iterator[Load]:
    load = Load(log, seed=1)
    yield load
    load.stop()
