"""What the gateway tells clients: frames, encoded once for each surface (Server-Sent Events and WebSocket)."""
