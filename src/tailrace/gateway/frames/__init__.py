"""What is said to clients: frames, encoded once for each surface (Server-Sent Events and WebSocket)."""
