"""Parity: recorded input and output of other systems and of our own specification, replayed against our code."""
