"""What Redis holds, byte for byte: names of keys, rows, events, messages and reports.

position: up to which offset of its changelog partition the store has come, and of which lineage and
generation
whole: a partition is whole once it has reached its target: the last offset of its changelog when it was begun
packed: in the bytes that are sent, stored and published
marks: per source partition of a feed, the highest version taken; an event that is not above it is a replay
begun: the name of a feed partition's histories, which a restore begins anew
"""
