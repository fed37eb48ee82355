"""How processes connect to Kafka: one file, in the names of Java's clients or of librdkafka, for both.

- entry: a line of the file
- passed: an entry that clients take as it is, under the name that each has for it
- fixed: a setting that a file may not have, because a promise depends on it
- security: protocol, certificates and credentials, which each client is told in its own way
"""
