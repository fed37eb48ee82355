"""The gateway: store → clients. It knows Redis only, and the app only from the catalog there."""
