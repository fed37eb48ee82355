"""Connections to Redis: addresses, servers, topology, outages, scripts."""
