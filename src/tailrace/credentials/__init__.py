"""What files say of a connection: entries with their lines, certificates to trust, and the client's own.

The configurations of Kafka and of the schema registry share it, because their files have the same entries for TLS.
"""
