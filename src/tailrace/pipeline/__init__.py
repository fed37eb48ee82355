"""The pipeline: topic → view → changelog, in Spark's real-time mode."""
