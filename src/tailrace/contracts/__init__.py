"""What processes say to each other: records, positions, the catalog, commands. No I/O."""
