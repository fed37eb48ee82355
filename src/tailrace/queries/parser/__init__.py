"""From the text of a query to the tree of its predicate."""
