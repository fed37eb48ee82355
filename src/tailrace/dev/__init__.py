"""Everything `tailrace dev` adds to a bare machine: Java, locked jars, a Kafka broker, a Redis, and their processes.

- part: a process that `tailrace dev` has started
- locks: what `tailrace dev --secure` keeps others out with
"""
