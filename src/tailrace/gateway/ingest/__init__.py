"""Events in: what clients write to topics, checked against the declared schema."""
