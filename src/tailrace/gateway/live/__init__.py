"""What clients follow: subscriptions, what they ask for, and where they resume."""
