"""An app with one view whose changelog the test writes, and the commands that are its streams."""

from __future__ import annotations

import pytest

from streaming import Streams
from tailrace.dev.broker import Broker


@pytest.fixture
def streams(broker: Broker, fresh: str) -> Streams:
    return Streams(broker, fresh)
