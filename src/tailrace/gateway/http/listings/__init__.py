"""Listings: the rows of a view that match a query, page by page.

- standing: how far a view is when a page begins; all its partitions are whole and of one build
- place: where a scan goes on; the `next` of a page names it
- gone: a key that the client had seen, and that holds nothing any more or does not match
"""
