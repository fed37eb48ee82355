"""How processes reach Redis: its address, the servers behind it, what can go wrong, and scripts.

seed: a server that the setting names: the server itself, a Sentinel, or a node of the Cluster
node: a server that holds data
adviser: a server that is asked which node holds a key: a Sentinel, or any node of the Cluster
topology: which node holds a key, as far as is known
outage: an answer, or silence, that means "wait and ask again"; it is raised as `Unavailable`
room: how many commands may be under way at a time; a reader with room of its own does not wait behind the
others
"""
