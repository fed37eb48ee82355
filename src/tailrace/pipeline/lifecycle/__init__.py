"""The life of a query: generations, checkpoints, restarts, catching up."""
