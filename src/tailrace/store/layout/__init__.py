"""What Redis holds, byte for byte: names of keys, rows, events and messages."""
