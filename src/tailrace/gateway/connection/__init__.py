"""One client's bytes and its end: protocols, the wire, writing to many, and why connections end.

- wire: the write side of one connection, lent to what follows
- direct transport: what a wire writes to: the system while nothing waits for the client, the loop's transport
  while something does
- burst: several rows of a key that wait for one flush
- ending: why the gateway ends a connection, in words and as the close code of a WebSocket
- fan-out: writing the same frames to all clients that follow the same thing
- doorway: what every connection passes before its first byte: deadlines, descriptors, clients that do not read
- guest: a connection that the doorway looks after
- under TLS: a `TlsProtocol` stands between the system and the protocol, and encrypts what is written directly
- owe: a connection owes a request until a whole one has arrived; it has a deadline for that
"""
