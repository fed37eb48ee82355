"""Records that can't be used: found beside the views, and kept with the reason."""
