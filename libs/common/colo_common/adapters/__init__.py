"""Implementations of the ports: NATS, Redis, clocks, and memory twins."""
