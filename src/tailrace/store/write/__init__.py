"""What the materializer writes to the store.

A *parcel* is a batch as one script call takes it. A script that finds another position than the caller believes writes
nothing and says that the partition has moved.
"""
