"""One client's bytes and its end: protocols, the wire, writing to many, and why connections end."""
