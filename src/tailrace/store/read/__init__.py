"""The gateway's side of the store: what it reads, keeps for its clients and subscribes to.

link: the connection that all subscribed channels share
batch: some rows of a scan, and a cursor that leads to the next ones
registration: a gateway's notice that a client listens to a feed; it expires unless it is refreshed
history: the events that the store keeps of one client
restricted: a user who was shown a part of a view lately
"""
