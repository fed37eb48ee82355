"""The gateway: store → clients. It knows the app only from the catalog in Redis; to Kafka it writes commands."""
