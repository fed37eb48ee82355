"""What a user's module declares: apps, topics, tables, views and feeds, as plain data."""
