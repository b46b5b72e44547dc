"""Placement requests: their request classes, their validation and the queue they wait in."""
