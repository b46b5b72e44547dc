"""Computes the allocatable of batch and mid work for each node and zone, and explains it."""
