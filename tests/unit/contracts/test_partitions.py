"""Keys fall on the partitions that Kafka's Java client gives them."""

from __future__ import annotations

import pytest

from tailrace.contracts.partitions import murmur2, partition_of


# From Kafka's own UtilsTest, as signed 32-bit numbers.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_kafkas_own_test_vectors(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected % 2**32


def test_a_partition_is_always_one_of_those_there_are() -> None:
    assert {partition_of(str(n).encode(), 7) for n in range(1000)} == set(range(7))
