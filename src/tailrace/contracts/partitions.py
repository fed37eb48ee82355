"""Which changelog partition holds a key, by Kafka's own rule, so that nobody has to ask."""

from __future__ import annotations

_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, as an unsigned number."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = (int.from_bytes(data[i : i + 4], "little") * 0x5BD1E995) & _MASK
        k = ((k ^ (k >> 24)) * 0x5BD1E995) & _MASK
        h = ((h * 0x5BD1E995) & _MASK) ^ k
    if whole != length:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * 0x5BD1E995) & _MASK
    h = ((h ^ (h >> 13)) * 0x5BD1E995) & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's default partitioner gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
