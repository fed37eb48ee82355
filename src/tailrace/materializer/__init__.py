"""The materializer: reads changelogs from Kafka and keeps Redis in step with them.

- open: a partition whose records are read; `held` names such a partition in the code
- add: to write to a changelog; materializers write tombstones of vanished and expired keys
- vanished: a key that only generations before the served one had
- mend: to add a row once more if an addition of lower rank came after it
- prune: to forget tombstones that neither a client nor a replay needs
- doubtful: a partition with a batch that Redis may never take; `poison_search` finds the record
"""
