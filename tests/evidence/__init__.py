"""Measurements of what colo claims, against plain alternatives on the same input: `python -m tests.evidence`."""
