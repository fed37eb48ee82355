"""Avro schemas: what their names mean, which of them can be used, and the registry that keeps them."""
