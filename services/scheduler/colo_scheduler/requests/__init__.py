"""Placement requests: their request classes, their validation and their queue."""
