"""Simulated machines, trace readers and the virtual-time world."""
