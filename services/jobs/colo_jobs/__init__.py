"""Owns queues with their limits, and jobs, tasks and replicas with their state machines."""
