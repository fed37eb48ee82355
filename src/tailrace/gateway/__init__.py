"""The gateway: store → clients. It knows the app only from the catalog in Redis.

To Kafka it writes commands, and the events that clients send.
"""
