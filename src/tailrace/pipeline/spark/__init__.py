"""The Spark session, its JVM, and our own classes in it."""
