"""Simulated machines, trace readers, and a simulated cluster on virtual time."""
