"""Decides what batch and mid work may be promised per node and zone, and explains it."""
