"""Avro schemas: what their names mean, which schemas can be used, and the registry that keeps them."""
