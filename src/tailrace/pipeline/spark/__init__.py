"""The Spark session, its JVM, and our own classes in it.

- archive: Spark's classes in a file that a JVM maps instead of loading them; `tailrace prepare` makes it
"""
