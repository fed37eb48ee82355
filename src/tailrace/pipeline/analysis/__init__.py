"""What Spark's analysis says of an app before anything runs."""
