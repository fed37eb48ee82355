"""What processes say to each other: records, positions, the catalog, commands. No I/O.

- request: a record on the catalog topic that asks the pipeline for a rebuild or reset
- report: what a materializer writes to the store every few seconds: how fresh each view is
- rank: (generation, version, row or gone); decides between two changes of one key
- changes of keys: steps that add keys to a stream or remove some; numbered, so that a client that was away is
  told of them
"""
