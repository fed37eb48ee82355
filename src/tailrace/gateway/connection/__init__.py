"""One client's bytes and its end: the HTTP and WebSocket protocols, the wire, writing to many, and why connections end."""
