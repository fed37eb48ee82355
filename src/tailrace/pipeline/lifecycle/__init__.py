"""The life of queries: choosing builds, the catalog, checkpoints, supervision, catching up.

- group of builds: a view and those that read it, whose next generations are handed over at one moment
- base: a number that is added to versions that count events. It rises if a replay may count fewer.
"""
