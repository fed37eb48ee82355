"""From columns to rows: how declarations become Spark plans."""
