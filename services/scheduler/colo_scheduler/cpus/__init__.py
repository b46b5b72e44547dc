"""Choosing CPUs of one machine: pure functions from a topology, what is held, and a request to the same CPUs every time."""
