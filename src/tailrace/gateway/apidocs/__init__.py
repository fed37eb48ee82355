"""The documents of the API, made from the catalog: OpenAPI for requests, AsyncAPI for streams."""
