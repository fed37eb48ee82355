"""From rows to changelog records."""
