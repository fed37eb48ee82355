"""Listings: the rows of a view that match a query, page by page."""
