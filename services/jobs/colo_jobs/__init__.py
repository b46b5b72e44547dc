"""Owns queues, quotas, jobs, tasks and replicas and their state machines."""
