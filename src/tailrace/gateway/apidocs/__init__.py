"""The documents of the API: OpenAPI and AsyncAPI, made from the catalog."""
